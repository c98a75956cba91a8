//! Questions at a terminal.

use std::io::{self, Write as _};

use crossterm::{
    event::{self, Event, KeyCode, KeyEventKind, KeyModifiers},
    terminal,
};

use super::{super::local_servers::LocalServer, vendors::VENDORS};
use crate::{error::Error, screen::Screen};

/// Asks for a provider, by its number or name. Servers on this machine are offered, too; the first
/// one is the default.
pub fn vendor(screen: &Screen, local: &[LocalServer]) -> Result<String, Error> {
    screen.note("Which provider of models?")?;
    let choices = choices(local);
    for ((_, title), number) in choices.iter().zip(1..) {
        screen.note(&format!("{number:>4}  {title}"))?;
    }
    screen.note("      or the name of another one, with OpenAI's API")?;
    let default = choices.iter().position(|(name, _)| local.iter().any(|of| of.provider == *name));
    let given = line("Provider", &(default.unwrap_or_default() + 1).to_string())?;
    match given.parse::<usize>() {
        Ok(number) => match number.checked_sub(1).and_then(|at| choices.get(at)) {
            Some((name, _)) => Ok((*name).to_owned()),
            None => Err(Error::Usage(format!("{number} is not in the list"))),
        },
        Err(_) => Ok(given.to_lowercase()),
    }
}

/// Names and titles of the known vendors, then of further servers on this machine.
fn choices(local: &[LocalServer]) -> Vec<(&'static str, String)> {
    let running = |server: &LocalServer| {
        format!("{}, running on this machine: {}", server.title, server.shown_models())
    };
    let server_of = |name: &str| local.iter().find(|server| server.provider == name);
    let vendors = VENDORS.iter().map(|vendor| {
        let title = server_of(vendor.name).map_or_else(|| vendor.title.to_owned(), running);
        (vendor.name, title)
    });
    let is_vendor = |server: &LocalServer| VENDORS.iter().any(|of| of.name == server.provider);
    let further = local.iter().filter(|server| !is_vendor(server));
    vendors.chain(further.map(|server| (server.provider, running(server)))).collect()
}

/// Asks for a line; an empty one is the default.
pub fn line(question: &str, default: &str) -> Result<String, Error> {
    let hint = if default.is_empty() { String::new() } else { format!(" [{default}]") };
    ask(&format!("{question}{hint}: "))?;
    let mut given = String::new();
    if io::stdin().read_line(&mut given)? == 0 {
        return Err(Error::Usage("the input has ended".to_owned()));
    }
    let given = given.trim();
    Ok(if given.is_empty() { default } else { given }.to_owned())
}

fn ask(text: &str) -> Result<(), Error> {
    let mut err = io::stderr().lock();
    write!(err, "{text}")?;
    Ok(err.flush()?)
}

/// Terminal that shows nothing of what is typed, until this is dropped.
struct HiddenInput;

impl HiddenInput {
    fn begin() -> io::Result<Self> {
        terminal::enable_raw_mode()?;
        Ok(Self)
    }
}

impl Drop for HiddenInput {
    fn drop(&mut self) {
        drop(terminal::disable_raw_mode());
    }
}

/// Asks for a secret, which is not shown.
pub fn secret(screen: &Screen, question: &str) -> Result<String, Error> {
    ask(question)?;
    let hidden = HiddenInput::begin()?;
    let given = read_secret();
    drop(hidden);
    screen.note("")?;
    given
}

fn read_secret() -> Result<String, Error> {
    let mut secret = String::new();
    loop {
        match event::read()? {
            Event::Paste(text) => secret.push_str(&text),
            Event::Key(key) if key.kind != KeyEventKind::Release => match key.code {
                KeyCode::Enter => return Ok(secret),
                KeyCode::Backspace => {
                    secret.pop();
                }
                KeyCode::Char('c' | 'd') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                    return Err(Error::Usage("no key was given".to_owned()));
                }
                KeyCode::Char('u') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                    secret.clear();
                }
                KeyCode::Char(c) => secret.push(c),
                _ => {}
            },
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_on_this_machine_are_offered_with_their_models() {
        let server = |provider, title| {
            let (base_url, models) = (String::new(), vec!["qwen3".to_owned(), "b".to_owned()]);
            LocalServer { provider, title, base_url, models }
        };

        let choices = choices(&[server("ollama", "Ollama"), server("vllm", "vLLM")]);

        let of = |name| choices.iter().filter(move |choice| choice.0 == name).collect::<Vec<_>>();
        assert_eq!(of("ollama")[0].1, "Ollama, running on this machine: qwen3, b");
        assert_eq!((of("ollama").len(), of("vllm").len()), (1, 1));
        assert_eq!(choices.last().unwrap().0, "vllm");
        assert_eq!(self::choices(&[]).len(), VENDORS.len());
    }
}
