//! Excel workbooks (.xlsx, .xlsm, .xlsb, .xls): rows of each sheet, with the stored results of
//! formulas.

use std::io::Cursor;

use calamine::{
    Data, DataRef, ExcelDateTime, Reader, Xls, XlsError, Xlsb, Xlsx, XlsxError,
    open_workbook_from_rs,
};

use crate::{Document, DocumentKind, Error, package::Package, writer::TextWriter};

const DAMAGED_WORKBOOK: Error = Error::Damaged(DocumentKind::Workbook);

const SECONDS_PER_DAY: f64 = 86_400.0;

/// Maximum number of columns of a row; the format has no more.
const MAX_COLUMNS: usize = 16_384;

/// Reads a workbook in the format since 2007.
pub fn read(package: &mut Package<'_>, content: &[u8]) -> Result<Document, Error> {
    package.kind = DocumentKind::Workbook;
    // The library unpacks without limits.
    package.check_size()?;
    let title = package.title("docProps/core.xml")?;
    let mut workbook: Xlsx<_> = open_workbook_from_rs(Cursor::new(content)).map_err(xlsx_error)?;
    let mut writer = TextWriter::default();
    for name in workbook.sheet_names() {
        writer.heading(2, &format!("Sheet: {name}"))?;
        // A chart sheet has no cells.
        let Ok(mut cells) = workbook.worksheet_cells_reader(&name) else { continue };
        let (mut row, mut number) = (Vec::new(), 0);
        while let Some(cell) = cells.next_cell().map_err(|_| DAMAGED_WORKBOOK)? {
            let (at, column) = cell.get_position();
            if at != number {
                writer.row(&row)?;
                row.clear();
                number = at;
            }
            let column = usize::try_from(column).unwrap_or(usize::MAX);
            if column >= MAX_COLUMNS {
                continue;
            }
            if row.len() <= column {
                row.resize(column + 1, String::new());
            }
            row[column] = cell_text(cell.get_value());
        }
        writer.row(&row)?;
    }
    Ok(Document { kind: DocumentKind::Workbook, title, text: writer.finish() })
}

/// Reads a workbook in the binary format since 2007.
pub fn read_binary(package: &mut Package<'_>, content: &[u8]) -> Result<Document, Error> {
    package.kind = DocumentKind::Workbook;
    package.check_size()?;
    let workbook: Xlsb<_> = open_workbook_from_rs(Cursor::new(content))
        .map_err(|_: calamine::XlsbError| DAMAGED_WORKBOOK)?;
    read_ranges(workbook)
}

/// Reads a workbook in the format before 2007.
pub fn read_old(content: &[u8]) -> Result<Document, Error> {
    let workbook: Result<Xls<_>, XlsError> = open_workbook_from_rs(Cursor::new(content));
    let workbook = workbook.map_err(|error| match error {
        XlsError::Password => Error::Locked(DocumentKind::Workbook),
        _ => DAMAGED_WORKBOOK,
    })?;
    read_ranges(workbook)
}

fn read_ranges<R: Reader<Cursor<T>>, T: AsRef<[u8]>>(mut workbook: R) -> Result<Document, Error>
where
    Cursor<T>: std::io::Read + std::io::Seek,
{
    let mut writer = TextWriter::default();
    for name in workbook.sheet_names() {
        writer.heading(2, &format!("Sheet: {name}"))?;
        let Ok(range) = workbook.worksheet_range(&name) else { continue };
        for row in range.rows() {
            let row: Vec<String> = row.iter().map(|cell| cell_text(&as_ref(cell))).collect();
            writer.row(&row)?;
        }
    }
    let text = writer.finish();
    Ok(Document { kind: DocumentKind::Workbook, title: String::new(), text })
}

fn as_ref(cell: &Data) -> DataRef<'_> {
    match cell {
        Data::Int(value) => DataRef::Int(*value),
        Data::Float(value) => DataRef::Float(*value),
        Data::String(text) => DataRef::SharedString(text),
        Data::Bool(value) => DataRef::Bool(*value),
        Data::DateTime(value) => DataRef::DateTime(*value),
        Data::DateTimeIso(text) => DataRef::DateTimeIso(text.clone()),
        Data::DurationIso(text) => DataRef::DurationIso(text.clone()),
        Data::Error(error) => DataRef::Error(error.clone()),
        Data::Empty => DataRef::Empty,
    }
}

fn cell_text(value: &DataRef<'_>) -> String {
    match value {
        DataRef::Int(value) => value.to_string(),
        DataRef::Float(value) => number(*value),
        DataRef::String(text) => text.clone(),
        DataRef::SharedString(text) => (*text).to_owned(),
        DataRef::Bool(true) => "TRUE".to_owned(),
        DataRef::Bool(false) => "FALSE".to_owned(),
        DataRef::DateTime(value) => time(value),
        DataRef::DateTimeIso(text) | DataRef::DurationIso(text) => text.clone(),
        DataRef::Error(error) => error.to_string(),
        DataRef::Empty => String::new(),
    }
}

/// Number with the 15 digits that Excel shows of it.
fn number(value: f64) -> String {
    let rounded = format!("{value:.14e}").parse::<f64>().unwrap_or(value);
    rounded.to_string()
}

/// Date, time, or both, as in `2026-11-29 14:05`; a duration as `26:30:00`.
fn time(value: &ExcelDateTime) -> String {
    if value.is_duration() {
        let sign = if value.as_f64() < 0.0 { "-" } else { "" };
        let total = (value.as_f64().abs() * SECONDS_PER_DAY).round();
        let (hours, minutes) = ((total / 3600.0).floor(), (total % 3600.0 / 60.0).floor());
        return format!("{sign}{hours}:{minutes:02}:{:02}", total % 60.0);
    }
    let (year, month, day, hour, minute, second, _) = value.to_ymd_hms_milli();
    let date = format!("{year:04}-{month:02}-{day:02}");
    let seconds = if second == 0 { String::new() } else { format!(":{second:02}") };
    let time = format!("{hour:02}:{minute:02}{seconds}");
    match (value.as_f64() < 1.0, value.as_f64().fract() == 0.0) {
        (true, _) => time,
        (false, true) => date,
        (false, false) => format!("{date} {time}"),
    }
}

fn xlsx_error(error: XlsxError) -> Error {
    match error {
        XlsxError::Password => Error::Locked(DocumentKind::Workbook),
        _ => DAMAGED_WORKBOOK,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_no_digits_that_excel_does_not_show() {
        for (value, text) in [(0.1 + 0.2, "0.3"), (1234567.0, "1234567"), (-2.5, "-2.5")] {
            assert_eq!(number(value), text);
        }
    }
}
