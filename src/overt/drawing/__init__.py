"""What every picture and page shares: a canvas, and how numbers and letters are written."""
