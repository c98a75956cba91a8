//! Opened workspace, beneath which folders of commands are opened.
//!
//! Everything is opened beneath the workspace's directory, one name after the other, so that no
//! symlink leads out, whatever a running script puts there meanwhile (`openat2` with
//! `RESOLVE_BENEATH` where the kernel has it, cap-std's own walk else).

use std::path::Path;

use cap_std::{ambient_authority, fs::Dir};

use crate::{PathError, WorkPath};

#[derive(Debug)]
pub(crate) struct Root(Dir);

impl Root {
    /// Opens a workspace. The caller is responsible for the choice of the directory.
    ///
    /// # Errors
    ///
    /// If there is no such directory.
    pub(crate) fn open(dir: impl AsRef<Path>) -> Result<Self, PathError> {
        Ok(Self(Dir::open_ambient_dir(dir, ambient_authority())?))
    }

    pub(crate) fn open_dir(&self, path: &WorkPath) -> Result<Dir, PathError> {
        Ok(self.0.open_dir(path.as_relative())?)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::symlink,
        time::{Duration, Instant},
    };

    use rustix::fs::{CWD, RenameFlags, renameat_with};

    use super::*;

    #[test]
    fn a_folder_inside_is_opened_and_a_symlink_that_leads_out_is_denied() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("in/sub")).unwrap();
        fs::create_dir(dir.path().join("out")).unwrap();
        symlink("sub", dir.path().join("in/near")).unwrap();
        symlink("../out", dir.path().join("in/relative")).unwrap();
        symlink(dir.path().join("out"), dir.path().join("in/absolute")).unwrap();
        symlink("..", dir.path().join("in/sub/up")).unwrap();
        let root = Root::open(dir.path().join("in")).unwrap();
        let open = |path: &str| root.open_dir(&WorkPath::parse(path).unwrap());

        for inside in ["", "sub", "near", "sub/up", "sub/up/near"] {
            assert!(open(inside).is_ok(), "{inside}");
        }
        for outside in ["relative", "absolute", "sub/up/relative", "sub/up/absolute"] {
            assert!(matches!(open(outside), Err(PathError::SymlinkOutside)), "{outside}");
        }
        assert!(matches!(open("nothing"), Err(PathError::NotFound)));
    }

    #[test]
    fn no_folder_outside_is_opened_while_a_folder_becomes_a_symlink() {
        let dir = tempfile::tempdir().unwrap();
        let (inside, out) = (dir.path().join("in"), dir.path().join("out"));
        fs::create_dir_all(inside.join("d/sub")).unwrap();
        fs::create_dir_all(out.join("sub")).unwrap();
        fs::write(out.join("sub/secret"), "").unwrap();
        symlink(&out, inside.join("link")).unwrap();
        let root = Root::open(&inside).unwrap();
        let (d, link) = (inside.join("d"), inside.join("link"));
        let until = Instant::now() + Duration::from_secs(1);

        let (opened, denied) = std::thread::scope(|threads| {
            let swapper = threads.spawn(|| {
                while Instant::now() < until {
                    renameat_with(CWD, &d, CWD, &link, RenameFlags::EXCHANGE).unwrap();
                }
            });
            let (mut opened, mut denied) = (0, 0);
            while !swapper.is_finished() {
                match root.open_dir(&WorkPath::parse("d/sub").unwrap()) {
                    Ok(folder) => {
                        assert!(!folder.exists("secret"), "a folder outside was opened");
                        opened += 1;
                    }
                    Err(_) => denied += 1,
                }
            }
            (opened, denied)
        });

        assert!(opened > 0 && denied > 0, "{opened} opened, {denied} denied");
    }
}
