//! Questions at a terminal.

use std::io::{self, Write as _};

use crossterm::{
    event::{self, Event, KeyCode, KeyEventKind, KeyModifiers},
    terminal,
};

use super::vendors::VENDORS;
use crate::{error::Error, screen::Screen};

/// Asks for a provider, by its number or name.
pub fn vendor(screen: &Screen) -> Result<String, Error> {
    screen.note("Which provider of models?")?;
    for (vendor, number) in VENDORS.iter().zip(1..) {
        screen.note(&format!("{number:>4}  {}", vendor.title))?;
    }
    screen.note("      or the name of another one, with OpenAI's API")?;
    let given = line("Provider", "1")?;
    match given.parse::<usize>() {
        Ok(number) => match number.checked_sub(1).and_then(|at| VENDORS.get(at)) {
            Some(vendor) => Ok(vendor.name.to_owned()),
            None => Err(Error::Usage(format!("{number} is not in the list"))),
        },
        Err(_) => Ok(given.to_lowercase()),
    }
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
