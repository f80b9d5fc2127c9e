"""The smoother under the interfaces of other libraries: scikit-learn and aeon."""
