"""One reader a file format, each from a path to a stream of `Pair`s; `clearhead.text.readers` picks among
them."""
