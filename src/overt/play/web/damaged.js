// Shown by the page, which starts the worker, and by the worker, which reads the model.
export const DAMAGED = "The file's model cannot be read: the file is cut short or damaged. Write the page again with overt play.";
