//! Parts of documents that tests generate.
//!
//! A part lies between `<!-- generated: <name> -->` and `<!-- end of <name> -->`. A test compares it
//! with what it has found out; with an environment variable it rewrites the part instead. Tests of
//! several processes may rewrite parts of one document at the same time.

use std::{
    fs::{File, OpenOptions},
    io::{Read as _, Seek as _, Write as _},
    path::Path,
};

use anyhow::Context as _;

/// Compares a part of a document with its generated text; rewrites it if the environment variable is
/// set.
///
/// # Errors
///
/// If the document cannot be read, has no such part, or the part differs.
pub fn check_part(document: &Path, name: &str, text: &str, variable: &str) -> anyhow::Result<()> {
    let is_rewritten = std::env::var_os(variable).is_some();
    let opened = OpenOptions::new().read(true).write(is_rewritten).open(document);
    let mut file = opened.with_context(|| document.display().to_string())?;
    if is_rewritten {
        file.lock()?;
    }
    let mut whole = String::new();
    file.read_to_string(&mut whole)?;
    let (before, part, after) = split(&whole, name)
        .with_context(|| format!("{} has no part `{name}`", document.display()))?;
    let text = format!("\n{}\n\n", text.trim());
    if part == text {
        return Ok(());
    }
    if is_rewritten {
        return rewrite(&mut file, &format!("{before}{text}{after}"));
    }
    let changed = changed_lines(part, &text).join("\n");
    anyhow::bail!(
        "the part `{name}` of {} differs: if the change is meant, run this test with {variable}=1\n\
         {changed}",
        document.display()
    )
}

/// Compares a table of `docs/stolen-parts.md` with what a test has tried.
///
/// Each row says what the credentials of one process permit, with a cell for each column that `head`
/// names. The table is rewritten if `HOLDFAST_WRITE_STOLEN_PARTS` is set.
///
/// # Errors
///
/// As [`check_part`].
pub fn check_stolen_parts(name: &str, head: &[&str], rows: &[Vec<String>]) -> anyhow::Result<()> {
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/stolen-parts.md");
    check_part(Path::new(document), name, &table(head, rows)?, "HOLDFAST_WRITE_STOLEN_PARTS")
}

/// A table in Markdown.
fn table(head: &[&str], rows: &[Vec<String>]) -> anyhow::Result<String> {
    let is_whole = rows.iter().all(|row| row.len() == head.len());
    anyhow::ensure!(is_whole && !rows.is_empty(), "a cell of the table is missing");
    let line = |cells: &[String]| format!("| {} |", cells.join(" | "));
    let head: Vec<String> = head.iter().map(|&cell| cell.to_owned()).collect();
    let ruler = format!("|{}", "---|".repeat(head.len()));
    let lines = [line(&head), ruler].into_iter().chain(rows.iter().map(|row| line(row)));
    Ok(lines.collect::<Vec<_>>().join("\n"))
}

/// Text before a part with its first mark, the part, and what follows from its last mark on.
fn split<'a>(whole: &'a str, name: &str) -> Option<(&'a str, &'a str, &'a str)> {
    let (first, last) =
        (format!("<!-- generated: {name} -->\n"), format!("\n<!-- end of {name} -->"));
    let begin = whole.find(&first)? + first.len();
    // The line feed before the last mark may be the one behind the first mark.
    let end = begin - 1 + whole.get(begin - 1..)?.find(&last)?;
    let end = (end + 1).max(begin);
    Some((whole.get(..begin)?, whole.get(begin..end)?, whole.get(end..)?))
}

fn rewrite(file: &mut File, whole: &str) -> anyhow::Result<()> {
    file.rewind()?;
    file.set_len(0)?;
    file.write_all(whole.as_bytes())?;
    Ok(())
}

/// Lines that only one of two texts has.
fn changed_lines(before: &str, after: &str) -> Vec<String> {
    let only = |sign: char, of: &str, other: &str| {
        let other: Vec<&str> = other.lines().collect();
        let lines = of.lines().filter(|line| !other.contains(line));
        lines.map(|line| format!("{sign} {line}")).collect::<Vec<_>>()
    };
    [only('-', before, after), only('+', after, before)].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "a\n<!-- generated: x -->\n\none\n\n<!-- end of x -->\nb\n";

    #[test]
    fn a_table_has_a_cell_for_each_of_its_columns() {
        let row = |cells: &[&str]| cells.iter().map(|&cell| cell.to_owned()).collect::<Vec<_>>();

        let whole = table(&["of", "who"], &[row(&["a", "—"])]).unwrap();
        assert_eq!(whole, "| of | who |\n|---|---|\n| a | — |");
        assert!(table(&["of", "who"], &[row(&["a"])]).is_err());
        assert!(table(&["of"], &[]).is_err());
    }

    #[test]
    fn a_part_that_differs_is_an_error_that_shows_its_lines() {
        let path = std::env::temp_dir().join(format!("{}.md", uuid::Uuid::now_v7().simple()));
        std::fs::write(&path, DOCUMENT).unwrap();

        check_part(&path, "x", "one", "HOLDFAST_NOT_SET").unwrap();
        let error = check_part(&path, "x", "two", "HOLDFAST_NOT_SET").unwrap_err().to_string();
        assert!(error.contains("- one\n+ two"), "{error}");
        check_part(&path, "y", "one", "HOLDFAST_NOT_SET").unwrap_err();
        // A variable that each process has.
        check_part(&path, "x", "two", "PATH").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), DOCUMENT.replace("one", "two"));
        std::fs::remove_file(&path).unwrap();
    }
}
