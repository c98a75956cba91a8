//! Values that are parsed from files, and again when the files change.
//!
//! Contents are compared, not times: Kubernetes replaces a mounted `Secret` by a link. A certificate
//! and its key are often written one after the other, so a problem is logged only if it is still
//! there at the next look.

use std::{
    fmt, fs,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

use anyhow::Context as _;
use tracing::{error, info};

/// Interval at which files are looked at: what they hold is used after at most this time.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// A file and its content.
pub(crate) struct Content {
    pub path: PathBuf,
    pub bytes: Vec<u8>,
}

type Parse<T> = dyn Fn(&[Content]) -> anyhow::Result<T> + Send + Sync;

/// Newest usable value of some files.
pub(crate) struct Watched<T> {
    paths: Vec<PathBuf>,
    parse: Box<Parse<T>>,
    current: RwLock<Arc<T>>,
    state: Mutex<State>,
}

struct State {
    /// Content of the files from which the current value is.
    bytes: Vec<Vec<u8>>,
    problem: Option<Problem>,
}

struct Problem {
    text: String,
    is_logged: bool,
}

impl<T> fmt::Debug for Watched<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").field("paths", &self.paths).finish_non_exhaustive()
    }
}

impl<T> Watched<T> {
    pub fn load(
        paths: Vec<PathBuf>,
        parse: impl Fn(&[Content]) -> anyhow::Result<T> + Send + Sync + 'static,
    ) -> anyhow::Result<Arc<Self>> {
        let contents = read(&paths)?;
        let current = RwLock::new(Arc::new(parse(&contents)?));
        let bytes = contents.into_iter().map(|content| content.bytes).collect();
        let state = Mutex::new(State { bytes, problem: None });
        Ok(Arc::new(Self { paths, parse: Box::new(parse), current, state }))
    }

    pub fn current(&self) -> Arc<T> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Names of the files, for logs.
    pub fn names(&self) -> String {
        let names: Vec<_> = self.paths.iter().map(|path| path.display().to_string()).collect();
        names.join(", ")
    }

    /// Takes the new value if the files have changed and can be used. Otherwise keeps the old one.
    pub fn refresh(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let contents = match read(&self.paths) {
            Ok(contents) => contents,
            Err(error) => return self.report(&mut state, &error),
        };
        if contents.iter().map(|content| &content.bytes).eq(&state.bytes) {
            state.problem = None;
            return;
        }
        match (self.parse)(&contents) {
            Ok(value) => {
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(value);
                state.bytes = contents.into_iter().map(|content| content.bytes).collect();
                state.problem = None;
                info!(files = self.names(), "changed files are in use");
            }
            Err(error) => self.report(&mut state, &error),
        }
    }

    fn report(&self, state: &mut State, error: &anyhow::Error) {
        let text = format!("{error:#}");
        match &mut state.problem {
            Some(problem) if problem.text == text => {
                if !problem.is_logged {
                    error!(
                        problem = text,
                        "changed files cannot be used, what they held before stays in use: write \
                         them again"
                    );
                    problem.is_logged = true;
                }
            }
            problem => *problem = Some(Problem { text, is_logged: false }),
        }
    }
}

fn read(paths: &[PathBuf]) -> anyhow::Result<Vec<Content>> {
    let read = |path: &PathBuf| {
        let bytes = fs::read(path).with_context(|| format!("cannot read `{}`", path.display()))?;
        Ok(Content { path: path.clone(), bytes })
    };
    paths.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    fn number(contents: &[Content]) -> anyhow::Result<u8> {
        match std::str::from_utf8(&contents[0].bytes)?.parse() {
            Ok(number) => Ok(number),
            Err(_) => bail!("`{}` is no number", contents[0].path.display()),
        }
    }

    #[test]
    fn a_broken_file_keeps_the_value_before_and_is_reported_once() {
        let path = std::env::temp_dir().join(format!("holdfast-watched-{}", std::process::id()));
        fs::write(&path, "1").unwrap();
        let watched = Watched::load(vec![path.clone()], number).unwrap();
        let is_logged = || watched.state.lock().unwrap().problem.as_ref().map(|p| p.is_logged);

        fs::write(&path, "two").unwrap();
        watched.refresh();
        assert_eq!(is_logged(), Some(false), "it may be half written");
        watched.refresh();
        assert_eq!((*watched.current(), is_logged()), (1, Some(true)));

        fs::write(&path, "3").unwrap();
        watched.refresh();
        assert_eq!((*watched.current(), is_logged()), (3, None));
        fs::remove_file(&path).unwrap();
        watched.refresh();
        assert_eq!((*watched.current(), is_logged()), (3, Some(false)));
    }
}
