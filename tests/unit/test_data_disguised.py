"""Files that are something else than a table, or than their name says: refused by the file, the
line and the format.
"""

import gzip
import json
from pathlib import Path

import pytest

from agt.data.csv_format import CsvFormat
from agt.data.files import open_columns
from agt.errors import DataError
from agt_cli.runs.inspect import inspect_table
from agt_cli.runs.sniffing import guess_csv_format

TABLE = "wage,age,y\n" + "".join(
    f"{20 * row}.5,{row},{'yes' if row % 2 else 'no'}\n" for row in range(60)
)
PACKED = gzip.compress(TABLE.encode(), mtime=0)
RECORD = json.dumps({"wage": 1, "age": 2})
RAGGED = TABLE.replace("\n0.5,0,no\n", "\n0.5,0,no,more\n")
QUOTED = TABLE.replace("\n0.5,", '\n"0.5,')


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("t.csv.gz", TABLE.encode(), "line 1 is 'wage,age,y'.*rename it to t.csv"),
        ("t.csv.gz", PACKED[: len(PACKED) // 2], r"after line \d+ "),
        ("t.csv", PACKED, "gzip.*t.csv.gz"),
        ("t.csv", b"PAR1" + bytes(99), "parquet"),
        ("t.csv", b"PK\x03\x04" + bytes(99), "Excel"),
        ("t.csv", b"ARROW1\0\0" + bytes(99), "Arrow"),
        ("t.csv", b"ORC" + bytes(99), "ORC"),
        ("t.csv", b"@RELATION people\n", "ARFF"),
        ("t.parquet", TABLE.encode(), "line 1 is 'wage,age,y'"),
        ("t.csv", TABLE.encode("utf-16-le"), "encoding=utf-16-le"),
        ("t.csv", TABLE.encode("utf-16-be"), "encoding=utf-16-be"),
        ("t.csv", f"sep=;\n{TABLE.replace(',', ';')}".encode(), "line 1 .sep=;.*separator=';'"),
        ("t.csv", f"SEP=;\n{TABLE.replace(',', ';')}".encode(), "line 1 .SEP=;.*separator=';'"),
        ("t.csv", b'["wage", "y"]\n[1, "no"]\n', "line 1 .*JSON lines.*lines=True"),
        ("t.csv", b'{"records": [\n{"wage": 1}]}\n', "line 1 .*JSON"),
        ("t.csv", f"{RECORD}\n{RECORD}\n".encode(), "line 1 .*JSON lines.*lines=True"),
        ("t.csv", f"[{RECORD},\n{RECORD}]\n".encode(), "line 1 .*JSON"),
        ("t.csv", b"<!DOCTYPE html>\n<html></html>\n", "line 1 .*HTML"),
        ("t.csv", b"", "is empty"),
        ("t.csv", b"\n\n", "is empty"),
        ("t.csv.gz", gzip.compress(b"", mtime=0), "is empty"),
        ("t.csv", b"\x89PNG\r\n\x1a\n" + bytes([0, 0, 0, 13]) * 9, "not a table.*not text"),
        ("t.csv", bytes(range(256)) * 9, "not a table.*not text"),
        ("t.csv", RAGGED.encode(), "line 2 has 4 cells, but line 1 has 3"),
        ("t.csv", QUOTED.encode(), "line 2 opens a quotation mark"),
    ],
)
def test_what_is_no_table_is_refused_by_line_and_format(
    tmp_path: Path, name: str, content: bytes, says: str
) -> None:
    """Where records are read, and where a table is looked at but for what is recognised there."""
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"(?s)^{path}: .*{says}"):
        open_columns(path, "s")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (f"Report of 2024\n\n{TABLE}", "line 1 .'Report of 2024'.*line 3"),
        (f"# made by hand\n{TABLE}", "line 1 .'# made by hand'.*line 2"),
        (f"Report of 2024;;\n{TABLE.replace(',', ';')}", "line 1 .*only 1 of 3 columns"),
        (TABLE.replace(",", "   "), "line 1 .*3 columns.*aligned by blanks"),
    ],
)
def test_a_first_line_that_is_not_one_of_the_table_is_named(
    tmp_path: Path, content: str, says: str
) -> None:
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(DataError, match=says):
        inspect_table(tmp_path / "t.csv")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-16", "utf-32", "utf-8-sig"])
def test_an_encoding_without_a_mark_is_recognised(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "t.csv").write_bytes(TABLE.encode(encoding))
    assert [column.name for column in inspect_table(tmp_path / "t.csv").columns] == [
        "wage",
        "age",
        "y",
    ]


@pytest.mark.parametrize(("word", "encoding"), [("Köln", "latin-1"), ("5 €", "cp1252")])
def test_text_of_one_byte_a_letter_is_recognised(tmp_path: Path, word: str, encoding: str) -> None:
    (tmp_path / "t.csv").write_bytes(f"{TABLE}{word},1,no\n".encode(encoding))
    assert guess_csv_format(tmp_path / "t.csv").encoding == encoding


@pytest.mark.parametrize("name", ["PAR1", "ORC", "orcid"])
def test_a_column_may_be_called_as_another_kind_of_file_begins(tmp_path: Path, name: str) -> None:
    (tmp_path / "t.csv").write_text(TABLE.replace("wage", name, 1))
    assert inspect_table(tmp_path / "t.csv").columns[0].name == name


@pytest.mark.parametrize(("given", "is_said"), [({}, True), ({"encoding": "cp1251"}, False)])
def test_a_guessed_encoding_is_said_with_a_word_that_shows_whether_it_is_right(
    tmp_path: Path, given: dict[str, str], is_said: bool
) -> None:
    (tmp_path / "t.csv").write_bytes(TABLE.replace("yes", "да").encode("cp1251"))
    warnings = inspect_table(tmp_path / "t.csv", label="y", form=given).warnings
    said = [warning for warning in warnings if warning.code == "encoding_guessed"]
    assert [warning.values for warning in said] == [("äà",)] * is_said


def test_a_table_of_words_whose_first_line_recurs_may_have_no_header(tmp_path: Path) -> None:
    """With ``header=True``, the owner says that it has one: then files were joined."""
    path = tmp_path / "t.csv"
    path.write_text("".join(f"{word},no\n" for word in ("red", "blue", "red", "blue") * 9))
    with pytest.raises(DataError, match=r"line 3.* repeats the names of line 1.*header=false"):
        inspect_table(path)
    with pytest.raises(DataError, match=r"repeats the names of line 1.*files were joined"):
        inspect_table(path, header=True)
    path.write_text(TABLE + TABLE)
    with pytest.raises(DataError, match=r"repeats the names of line 1.*files were joined"):
        inspect_table(path)


def test_a_name_with_blanks_around_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(TABLE.replace(",", ", "))
    with pytest.raises(DataError, match=r"' y', with blanks .*line 1"):
        inspect_table(tmp_path / "t.csv", label="y")


def test_records_of_text_in_two_bytes_a_letter_are_read_where_it_is_declared(
    tmp_path: Path,
) -> None:
    (tmp_path / "t.csv").write_bytes(TABLE.encode("utf-16-le"))
    columns = open_columns(tmp_path / "t.csv", "s", csv_format=CsvFormat(encoding="utf-16-le"))
    assert columns.numbers("age", "s").tolist() == [*range(60)]


def test_another_separator_in_the_first_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("wage;age;y\n" + "".join(f"{row},5;{row};no\n" for row in range(60)))
    with pytest.raises(DataError, match=r"';' stands 2 times.*dataset\.csv\.separator"):
        open_columns(path, "dataset.path")
