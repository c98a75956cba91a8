//! `${NAME}` in the texts of a file.

use figment::value::{Dict, Value};

use super::{ConfigError, Setting, value_of};

/// Replaces variables in all texts. A text that is one variable may be meant as a number: it is
/// taken out and returned as a setting.
///
/// # Errors
///
/// [`ConfigError::Variable`] if a variable is not set, or its name does not end.
pub(super) fn replace_variables(
    dict: &mut Dict,
    vars: &[(String, String)],
    origin: &str,
) -> Result<Vec<Setting>, ConfigError> {
    let mut replacing = Replacing { vars, origin, path: Vec::new(), settings: Vec::new() };
    replacing.dict(dict)?;
    Ok(replacing.settings)
}

struct Replacing<'a> {
    vars: &'a [(String, String)],
    origin: &'a str,
    path: Vec<String>,
    settings: Vec<Setting>,
}

impl Replacing<'_> {
    fn dict(&mut self, dict: &mut Dict) -> Result<(), ConfigError> {
        let mut single = Vec::new();
        for (key, value) in dict.iter_mut() {
            self.path.push(key.clone());
            if let Some(name) = value.as_str().and_then(single_variable) {
                let raw = self.variable(name)?.to_owned();
                self.settings.push(Setting {
                    path: self.path.clone(),
                    value: value_of(&raw),
                    raw,
                    origin: format!("`{name}` {}", self.origin),
                });
                single.push(key.clone());
            } else {
                self.value(value)?;
            }
            self.path.pop();
        }
        dict.retain(|key, _| !single.contains(key));
        Ok(())
    }

    fn value(&mut self, value: &mut Value) -> Result<(), ConfigError> {
        match value {
            Value::String(_, text) => *text = self.text(text)?,
            Value::Dict(_, dict) => self.dict(dict)?,
            Value::Array(_, values) => {
                for value in values {
                    self.value(value)?;
                }
            }
            Value::Char(..) | Value::Bool(..) | Value::Num(..) | Value::Empty(..) => {}
        }
        Ok(())
    }

    fn text(&self, text: &str) -> Result<String, ConfigError> {
        let (mut replaced, mut rest) = (String::new(), text);
        while let Some((before, after)) = rest.split_once("${") {
            if let Some(escaped) = before.strip_suffix('$') {
                replaced.extend([escaped, "${"]);
                rest = after;
                continue;
            }
            let Some((name, after)) = after.split_once('}') else {
                return Err(self.error("has `${` without `}`: write `$${` for a literal one"));
            };
            replaced.extend([before, self.variable(name)?]);
            rest = after;
        }
        replaced.push_str(rest);
        Ok(replaced)
    }

    fn variable(&self, name: &str) -> Result<&str, ConfigError> {
        let found = self.vars.iter().find(|(known, value)| known == name && !value.is_empty());
        found.map(|(_, value)| value.as_str()).ok_or_else(|| {
            self.error(&format!("needs the environment variable `{name}`, which is not set"))
        })
    }

    fn error(&self, why: &str) -> ConfigError {
        let (key, origin) = (self.path.join("."), self.origin.to_owned());
        ConfigError::Variable { key, origin, why: why.to_owned() }
    }
}

/// Name of the variable that is the whole text.
fn single_variable(text: &str) -> Option<&str> {
    let name = text.strip_prefix("${")?.strip_suffix('}')?;
    (!name.contains(['$', '{', '}'])).then_some(name)
}
