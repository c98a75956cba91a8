//! A program in a pseudo terminal, and what its screen shows.
//!
//! The terminal is made by `script` (util-linux), and read by a terminal emulator.

use std::{
    io::{Read as _, Write as _},
    process::{Child, ChildStdin, Stdio},
    sync::{Arc, Mutex},
    thread,
};

use crate::installation::{HOLDFAST, Installation, eventually, within_limit};

const ROWS: u16 = 30;
const COLUMNS: u16 = 100;

pub struct Terminal {
    process: Child,
    keyboard: ChildStdin,
    screen: Arc<Mutex<vt100::Parser>>,
    tty: String,
}

impl Terminal {
    /// Starts `holdfast` with these arguments.
    pub fn start(installation: &Installation, line: &[&str]) -> Self {
        let arguments: Vec<String> = line.iter().map(|word| format!("'{word}'")).collect();
        let tty = installation.root.join(format!("tty-{}", uuid::Uuid::now_v7().simple()));
        let shell = format!(
            "tty > '{}'; stty rows {ROWS} cols {COLUMNS}; exec '{HOLDFAST}' {} --dir '{}'",
            tty.display(),
            arguments.join(" "),
            installation.dir.display()
        );
        let mut command = std::process::Command::new("script");
        command.args(["-qfec", &shell, "/dev/null"]);
        installation.isolate(&mut command);
        let mut process = command
            .env("TERM", "xterm-256color")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let keyboard = process.stdin.take().unwrap();
        let mut output = process.stdout.take().unwrap();
        let screen = Arc::new(Mutex::new(vt100::Parser::new(ROWS, COLUMNS, 0)));
        let parser = Arc::clone(&screen);
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                parser.lock().unwrap().process(&bytes[..count]);
            }
        });
        let tty = eventually("the terminal", || {
            std::fs::read_to_string(&tty).ok().filter(|name| name.ends_with('\n'))
        });
        Self { process, keyboard, screen, tty: tty.trim().to_owned() }
    }

    pub fn text(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    /// Whether a cell of the screen has a color.
    pub fn has_color(&self) -> bool {
        let parser = self.screen.lock().unwrap();
        let screen = parser.screen();
        (0..ROWS).any(|row| {
            (0..COLUMNS).any(|column| {
                screen.cell(row, column).is_some_and(|cell| cell.fgcolor() != vt100::Color::Default)
            })
        })
    }

    pub fn type_text(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
        self.keyboard.flush().unwrap();
    }

    /// Waits until the screen satisfies this.
    pub fn wait(&self, what: &str, is_it: impl Fn(&str) -> bool) -> String {
        let shown = within_limit(|| Some(self.text()).filter(|text| is_it(text)));
        shown.unwrap_or_else(|| panic!("{what}: not in time; the screen shows\n{}", self.text()))
    }

    pub fn wait_for(&self, text: &str) -> String {
        self.wait(&format!("`{text}` on the screen"), |shown| shown.contains(text))
    }

    pub fn resize(&self, rows: u16, columns: u16) {
        self.screen.lock().unwrap().screen_mut().set_size(rows, columns);
        let (rows, columns) = (rows.to_string(), columns.to_string());
        let resized = std::process::Command::new("stty")
            .args(["-F", &self.tty, "rows", &rows, "cols", &columns])
            .status();
        assert!(resized.unwrap().success());
    }

    /// Waits for the end of the program, and returns its exit code.
    pub fn end(&mut self) -> Option<i32> {
        eventually("the end of the program", || self.process.try_wait().unwrap()).code()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
