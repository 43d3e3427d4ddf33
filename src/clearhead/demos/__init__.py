"""The demos: data made from packages (`demo` extra) or from Python itself, so that a first model needs no download.

| demo      | reads                                   | writes        | data from                           |
|-----------|-----------------------------------------|---------------|-------------------------------------|
| dates     | a date as people of 25 locales write it | ISO 8601      | babel: Unicode's locale data (CLDR) |
| pinyin    | a Chinese phrase                        | its syllables | pypinyin: a dictionary of phrases   |
| reference | the beginning of a text                 | how it goes on | Python's own language reference    |

Each module has `write_data(directory)` and `RECIPE`, the recipe that trains on what it wrote.
"""
