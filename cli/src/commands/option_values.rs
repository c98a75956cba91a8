//! Option values that are too long or too secret for the command line.

use std::{
    fs,
    io::{self, Read as _},
};

use serde_json::Value;

use crate::error::Error;

/// Returns the text itself, the content of a file after `@`, or stdin for `-`.
pub fn text(given: &str) -> Result<String, Error> {
    if given == "-" {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text)?;
        return Ok(text);
    }
    match given.strip_prefix('@') {
        Some(path) => fs::read_to_string(path)
            .map_err(|error| Error::Usage(format!("cannot read `{path}`: {error}"))),
        None => Ok(given.to_owned()),
    }
}

/// Reads like [`text`], without the trailing newline that editors add to a secret.
pub fn secret(given: &str) -> Result<String, Error> {
    Ok(text(given)?.trim_end_matches(['\r', '\n']).to_owned())
}

/// Reads like [`text`], and parses the text as JSON.
pub fn json(given: &str) -> Result<Value, Error> {
    serde_json::from_str(&text(given)?).map_err(|error| {
        // The error omits the text, which may be a secret.
        Error::Usage(format!("that is no JSON ({error}): write it, `@file`, or `-` for stdin"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_itself_or_a_file_s() {
        assert_eq!(text("hello").unwrap(), "hello");
        assert!(text("@Cargo.toml").unwrap().contains("[package]"));
        assert!(matches!(text("@/nowhere"), Err(Error::Usage(_))));
    }

    #[test]
    fn broken_json_is_not_repeated() {
        let error = json(r#"{"token": "geheim"#).unwrap_err().to_string();

        assert!(!error.contains("geheim"), "{error}");
    }
}
