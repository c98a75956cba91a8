//! Product that a tenant's agents run in, as their prompt names it: a white label has its own
//! (spec SYS-002).

use serde::{Deserialize, Serialize};

use crate::{Error, url_syntax};

const MAX_NAME_CHARS: usize = 64;
const MAX_URL_CHARS: usize = 200;
const MAX_COMMANDS: usize = 20;
const MAX_COMMAND_CHARS: usize = 200;
const MAX_DESCRIPTION_CHARS: usize = 160;

/// Name, documentation and commands of the product.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Product {
    /// Empty is Holdfast, with its own commands if none are given.
    pub name: String,
    /// URL of the documentation; empty if there is none.
    pub docs_url: String,
    /// Commands for people with a terminal.
    pub commands: Vec<ProductCommand>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProductCommand {
    pub command: String,
    /// What the command does.
    pub description: String,
}

impl Product {
    pub(crate) fn check(&self) -> Result<(), Error> {
        check_line("product's name", &self.name, MAX_NAME_CHARS)?;
        check_line("product's `docs_url`", &self.docs_url, MAX_URL_CHARS)?;
        if !self.docs_url.is_empty() && url_syntax::authority(&self.docs_url).is_none() {
            return Err(Error::Invalid(
                "a product's `docs_url` is no address: write `https://host/path`".to_owned(),
            ));
        }
        if self.commands.len() > MAX_COMMANDS {
            return Err(Error::Invalid(format!(
                "a product has {MAX_COMMANDS} commands at most, and this one {}",
                self.commands.len()
            )));
        }
        for ProductCommand { command, description } in &self.commands {
            if command.trim().is_empty() {
                return Err(Error::Invalid("a product's command is empty".to_owned()));
            }
            check_line("product's command", command, MAX_COMMAND_CHARS)?;
            check_line("command's description", description, MAX_DESCRIPTION_CHARS)?;
        }
        Ok(())
    }
}

fn check_line(what: &str, text: &str, limit: usize) -> Result<(), Error> {
    let length = text.chars().count();
    if length > limit {
        return Err(Error::Invalid(format!(
            "a {what} has {limit} characters at most, and this one {length}"
        )));
    }
    if text.contains(char::is_control) {
        return Err(Error::Invalid(format!("a {what} is one line: remove its line breaks")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_is_of_short_lines_and_its_documentation_has_an_address() {
        let command = |command: &str| ProductCommand {
            command: command.to_owned(),
            description: "talk".to_owned(),
        };
        let acme = Product {
            name: "Acme".to_owned(),
            docs_url: "https://acme.example/docs".to_owned(),
            commands: vec![command("acme chat")],
        };

        assert!(acme.check().is_ok() && Product::default().check().is_ok());
        for wrong in [
            Product { name: "x".repeat(65), ..acme.clone() },
            Product { name: "Acme\n## Safety".to_owned(), ..acme.clone() },
            Product { docs_url: "acme.example".to_owned(), ..acme.clone() },
            Product { commands: vec![command(" ")], ..acme.clone() },
            Product { commands: vec![command("x"); 21], ..acme },
        ] {
            assert!(matches!(wrong.check(), Err(Error::Invalid(_))), "{wrong:?}");
        }
    }
}
