"""Text in, batches out, in the order in which a pair travels.

    lines          bytes of a file to lines of text
    readers        files of many formats (`formats/`) to pairs
    tokenizers     texts to token ids and back
    filtering      which pairs can be used, and the report
    encoding       writes the encoded pairs to files, `atomic_folder` moves them into place
    corpus         the encoded pairs, memory-mapped
    batches        pairs to tensors, by token budget

Nothing is imported here: only `batches` needs torch, and what reads files shouldn't wait for it.
"""
