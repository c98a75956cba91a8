//! A tree on a runner's disk, for the time of a command.
//!
//! ```text
//! <root>/tree        what the command sees and changes
//! <root>/manifest    what the runner put there, with stamps
//! <root>/trash       where things are made and end
//! ```
//!
//! Only `tree` is shown to a command. [`Scratch::bring`] makes it a revision, and writes only what
//! is not so already; [`Scratch::changes`] finds what a command did, and reads only what was
//! touched.
//!
//! ## What can go wrong
//!
//! A command that is still running while these work can make them see half of what it does. It
//! cannot lead them out of `tree` (see `fs`). End it first.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::CString,
    fmt, fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use holdfast_types::{AgentId, TenantId, TreePath};

use crate::{
    Base, Cache, Committed, ContentHash, Edit, Error, Limits, Listed, Revision, Workspaces,
    export::blocking,
    fs::{Folder, Kind, Stamp, Trash, name},
    manifest::{Held, Manifest},
    read::{batches, contents, list_at},
    workspaces::head,
};

/// How many names a command may leave for each file that a tree may have, before they are not
/// looked through any more.
const NAMES_PER_FILE: usize = 10;

/// A tree on a runner's disk. One turn has it at a time.
#[derive(Debug)]
pub struct Scratch {
    place: Arc<Place>,
    workspaces: Workspaces,
    cache: Cache,
    tenant: TenantId,
    agent: AgentId,
    manifest: Manifest,
    /// What the last look found changed, until it is committed.
    found: BTreeMap<TreePath, Option<Held>>,
}

/// Where it is.
#[derive(Debug)]
struct Place {
    tree: PathBuf,
    manifest: PathBuf,
    root: Folder,
    trash: Trash,
    limits: Limits,
}

/// What bringing a tree took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Brought {
    /// What it is now.
    pub revision: Revision,
    /// Files that were written.
    pub written: usize,
    /// Files, links and others that were removed.
    pub removed: usize,
    /// Files of which the content came from the database and not from the cache.
    pub fetched: usize,
}

/// What a command did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changes {
    /// As edits of what it was given, in the order of their paths.
    pub edits: Vec<Edit>,
    /// What it left that cannot be in a tree, for it to be told. A file that something of the kind
    /// has replaced is not deleted.
    pub strays: Vec<Stray>,
}

/// Something that cannot be in a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stray {
    /// Where it is, for people to read.
    pub path: String,
    /// What it is.
    pub kind: StrayKind,
}

/// Why something cannot be in a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StrayKind {
    /// It is a symbolic link, wherever it points.
    Link,
    /// It is a pipe, a socket or a device.
    Special,
    /// Its name is no [`TreePath`].
    Name,
    /// It has more bytes than a file may have, or than there is room for with the others.
    Large,
    /// Its permissions keep even its owner out.
    Closed,
}

impl fmt::Display for StrayKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Link => "a link: put the file itself in its place",
            Self::Special => "a pipe, a socket or a device: leave it out",
            Self::Name => "a name that no file may have: rename it",
            Self::Large => "too large: split it, or keep less",
            Self::Closed => "closed by its permissions: let its owner read it",
        })
    }
}

impl Scratch {
    /// Opens or makes the scratch folder of a tree under `root`, which no command sees.
    ///
    /// What is there of another tree is not used, and goes when the tree is brought.
    ///
    /// # Errors
    ///
    /// If the folders cannot be made or read.
    pub async fn open(
        workspaces: Workspaces,
        cache: Cache,
        root: impl Into<PathBuf>,
        tenant: TenantId,
        agent: AgentId,
    ) -> Result<Self, Error> {
        let (root, limits) = (root.into(), workspaces.limits);
        let (place, manifest) = blocking(move || {
            let open = Error::disk("make a scratch folder");
            Place::open(&root, limits).map_err(open).map(|place| {
                let manifest = Manifest::load(&place.manifest, tenant, agent);
                (place, manifest)
            })
        })
        .await?;
        let found = BTreeMap::new();
        Ok(Self { place: Arc::new(place), workspaces, cache, tenant, agent, manifest, found })
    }

    /// The folder for the command.
    #[must_use]
    pub fn tree(&self) -> &Path {
        &self.place.tree
    }

    /// Makes the folder what the tree is at a revision, or at the newest. What a command left there
    /// and nobody committed is undone.
    ///
    /// # Errors
    ///
    /// [`Error::NoRevision`] if there is none of that number; else if the disk or the database does not
    /// do what is asked. Bring it again then.
    pub async fn bring(&mut self, at: Option<Revision>) -> Result<Brought, Error> {
        let (revision, listed) = self.wanted(at).await?;
        self.found.clear();
        let place = Arc::clone(&self.place);
        let held = std::mem::take(&mut self.manifest.files);
        // If this ends half-way, the next one takes nothing for granted.
        self.manifest.revision = None;
        let cleaned = blocking(move || place.clean(held, listed)).await?;
        let Cleaned { kept, missing, removed } = cleaned;

        self.manifest.files = kept;
        let written = missing.len();
        let mut fetched = 0;
        for part in batches(&missing, |file| file.size) {
            fetched += self.fill(part).await?;
        }
        self.manifest.revision = Some(revision);
        self.save().await?;
        Ok(Brought { revision, written, removed, fetched })
    }

    /// What a command changed since the tree was brought, or since the last changes were
    /// [`committed`](Self::settle).
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if it left too many files to be looked through; else if the disk does
    /// not do what is asked.
    pub async fn changes(&mut self) -> Result<Changes, Error> {
        let place = Arc::clone(&self.place);
        let held = std::mem::take(&mut self.manifest.files);
        let (held, looked) = blocking(move || {
            let looked = place.look(&held);
            Ok((held, looked))
        })
        .await?;
        self.manifest.files = held;
        let looked = looked?;
        for (path, stamp) in looked.touched {
            if let Some(held) = self.manifest.files.get_mut(&path) {
                held.stamp = stamp;
            }
        }
        self.found = looked.found;
        Ok(looked.changes)
    }

    /// Takes into account that the last changes were committed: they are not found again.
    ///
    /// # Errors
    ///
    /// If the disk does not do what is asked.
    pub async fn settle(&mut self, committed: &Committed) -> Result<(), Error> {
        for (path, held) in std::mem::take(&mut self.found) {
            match held {
                Some(held) => self.manifest.files.insert(path, held),
                None => self.manifest.files.remove(&path),
            };
        }
        // Another's change may be in between, which is not here yet.
        self.manifest.revision = match self.manifest.revision {
            Some(before) if before.next() == committed.revision => Some(committed.revision),
            _ => None,
        };
        self.save().await
    }

    /// What is to be there. Nothing is asked but the newest revision, if that is here already.
    async fn wanted(&self, at: Option<Revision>) -> Result<(Revision, Option<Vec<Listed>>), Error> {
        let mut tx = self.workspaces.pools.tenant(self.tenant).await?;
        let at = match at {
            Some(at) => at,
            None => head(&mut tx, self.agent).await?,
        };
        let listed = match self.manifest.revision {
            Some(here) if here == at => None,
            _ => Some(list_at(&mut tx, self.agent, at, None).await?),
        };
        tx.finish_reading();
        Ok((at, listed))
    }

    /// Writes files whose content is in the cache or the database; says how many were not in the
    /// cache.
    async fn fill(&mut self, files: &[Missing]) -> Result<usize, Error> {
        let (cache, tenant) = (self.cache.clone(), self.tenant);
        let hashes: BTreeSet<ContentHash> = files.iter().map(|file| file.hash).collect();
        let (mut known, unknown) = blocking(move || {
            let mut known = BTreeMap::new();
            let mut unknown = Vec::new();
            for hash in hashes {
                match cache.get(tenant, hash) {
                    Some(content) => drop(known.insert(hash, content)),
                    None => unknown.push(hash),
                }
            }
            Ok((known, unknown))
        })
        .await?;

        let mut fetched = Vec::new();
        if !unknown.is_empty() {
            let mut tx = self.workspaces.pools.tenant(tenant).await?;
            fetched = contents(&mut tx, &unknown).await?;
            tx.finish_reading();
        }
        let count = fetched.len();
        let (place, cache, files) = (Arc::clone(&self.place), self.cache.clone(), files.to_vec());
        let held = blocking(move || {
            for (hash, content) in &fetched {
                cache.put(tenant, *hash, content);
            }
            known.extend(fetched);
            place.write(files, &known)
        })
        .await?;
        self.manifest.files.extend(held);
        Ok(count)
    }

    async fn save(&self) -> Result<(), Error> {
        let (place, manifest) = (Arc::clone(&self.place), self.manifest.clone());
        let save = Error::disk("keep a scratch folder's manifest");
        blocking(move || manifest.save(&place.manifest).map_err(save)).await
    }
}

/// A file that is to be written.
#[derive(Clone)]
struct Missing {
    path: TreePath,
    hash: ContentHash,
    size: u64,
    second: i64,
}

/// A folder in which nothing is wrong, though files may be missing.
struct Cleaned {
    kept: BTreeMap<TreePath, Held>,
    missing: Vec<Missing>,
    removed: usize,
}

/// What is in the folder.
#[derive(Default)]
struct Walked {
    files: BTreeMap<TreePath, Stamp>,
    odd: Vec<Odd>,
    names: usize,
}

/// Something that cannot be in a tree.
struct Odd {
    folder: Option<TreePath>,
    name: CString,
    kind: StrayKind,
}

impl Odd {
    fn stray(&self) -> Stray {
        let name = self.name.to_string_lossy();
        let path = match &self.folder {
            Some(folder) => format!("{folder}/{name}"),
            None => name.into_owned(),
        };
        let clean = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
        Stray { path: path.chars().map(clean).collect(), kind: self.kind }
    }
}

/// What a look found.
struct Looked {
    changes: Changes,
    found: BTreeMap<TreePath, Option<Held>>,
    /// Files that were touched and say the same.
    touched: Vec<(TreePath, Stamp)>,
}

impl Place {
    fn open(root: &Path, limits: Limits) -> std::io::Result<Self> {
        let (tree, trash) = (root.join("tree"), root.join("trash"));
        fs::create_dir_all(&tree)?;
        fs::create_dir_all(&trash)?;
        Ok(Self {
            root: Folder::open(&tree)?,
            trash: Trash::open(&trash)?,
            manifest: root.join("manifest"),
            tree,
            limits,
        })
    }

    /// Removes what is not to be there, and says what is missing. Without a list, what is held is
    /// what is to be there.
    fn clean(
        &self,
        held: BTreeMap<TreePath, Held>,
        listed: Option<Vec<Listed>>,
    ) -> Result<Cleaned, Error> {
        let clean = || Error::disk("clean a scratch folder");
        let mut missing: BTreeMap<TreePath, Missing> = match listed {
            Some(listed) => {
                listed.into_iter().map(|file| (file.path.clone(), file.into())).collect()
            }
            None => {
                held.iter().map(|(path, held)| (path.clone(), Missing::of(path, held))).collect()
            }
        };
        let walked = self.walk(usize::MAX)?;
        let mut removed = walked.odd.len();
        for odd in &walked.odd {
            let folder = match &odd.folder {
                Some(folder) => self
                    .root
                    .folder_of(folder)
                    .and_then(|above| above.folder(&name(folder.name())?)),
                None => self.root.folder(c"."),
            };
            folder.and_then(|folder| self.trash.take(&folder, &odd.name)).map_err(clean())?;
        }
        let mut kept = BTreeMap::new();
        for (path, stamp) in walked.files {
            match (missing.get(&path), held.get(&path)) {
                (Some(wanted), Some(held)) if held.hash == wanted.hash && held.stamp == stamp => {
                    kept.insert(path.clone(), *held);
                    missing.remove(&path);
                }
                // It is written anew, in its place.
                (Some(_), _) => {}
                (None, _) => {
                    removed += 1;
                    self.remove(&path).map_err(clean())?;
                }
            }
        }
        self.trash.empty().map_err(clean())?;
        Ok(Cleaned { kept, missing: missing.into_values().collect(), removed })
    }

    /// Removes a file, and the folders that are empty without it.
    fn remove(&self, path: &TreePath) -> std::io::Result<()> {
        self.root.folder_of(path)?.unlink(&name(path.name())?)?;
        let mut path = path.folder();
        while let Some(folder) = path {
            if !self.root.folder_of(&folder)?.remove_empty(&name(folder.name())?) {
                break;
            }
            path = folder.folder();
        }
        Ok(())
    }

    fn write(
        &self,
        files: Vec<Missing>,
        contents: &BTreeMap<ContentHash, Vec<u8>>,
    ) -> Result<Vec<(TreePath, Held)>, Error> {
        let mut held = Vec::with_capacity(files.len());
        for Missing { path, hash, second, .. } in files {
            let content = contents.get(&hash).ok_or(Error::Corrupt { what: "content" })?;
            let written = self
                .root
                .make_folder_of(&path, &self.trash)
                .and_then(|folder| folder.write(&name(path.name())?, content, second, &self.trash));
            let stamp = written.map_err(Error::disk("write a file"))?;
            held.push((path, Held { hash, stamp, second }));
        }
        Ok(held)
    }

    /// Finds what is not as it was put there.
    fn look(&self, held: &BTreeMap<TreePath, Held>) -> Result<Looked, Error> {
        let files = usize::try_from(self.limits.files).unwrap_or(usize::MAX);
        let mut walked = self.walk(files.saturating_mul(NAMES_PER_FILE))?;
        let mut looked = Looked {
            changes: Changes { edits: Vec::new(), strays: Vec::new() },
            found: BTreeMap::new(),
            touched: Vec::new(),
        };
        let mut room = self.limits.tree;
        for (path, stamp) in &walked.files {
            let before = held.get(path);
            if before.is_some_and(|held| held.stamp == *stamp) {
                continue;
            }
            match self.read(path, self.limits.file.min(room))? {
                Ok((content, stamp)) => {
                    let hash = ContentHash::of(&content);
                    if before.is_some_and(|held| held.hash == hash) {
                        looked.touched.push((path.clone(), stamp));
                        continue;
                    }
                    room -= content.len() as u64;
                    let base = before.map_or(Base::Absent, |held| Base::Hash(held.hash));
                    looked
                        .found
                        .insert(path.clone(), Some(Held { hash, stamp, second: stamp.second() }));
                    looked.changes.edits.push(Edit::Put { path: path.clone(), content, base });
                }
                Err(kind) => {
                    let name = name(path.name()).map_err(Error::disk("read a file"))?;
                    walked.odd.push(Odd { folder: path.folder(), name, kind });
                }
            }
        }
        looked.changes.strays = walked.odd.iter().map(Odd::stray).collect();
        looked.changes.strays.sort_by(|a, b| a.path.cmp(&b.path));
        let strays: BTreeSet<&str> =
            looked.changes.strays.iter().map(|stray| stray.path.as_str()).collect();
        for (path, held) in held {
            // What a link or the like has replaced, or hides, is not deleted.
            let hidden = strays.contains(path.as_str())
                || path.folders().any(|folder| strays.contains(folder));
            if !walked.files.contains_key(path) && !hidden {
                let base = Base::Hash(held.hash);
                looked.found.insert(path.clone(), None);
                looked.changes.edits.push(Edit::Delete { path: path.clone(), base });
            }
        }
        looked.changes.edits.sort_by(|a, b| a.path().cmp(b.path()));
        Ok(looked)
    }

    fn read(
        &self,
        path: &TreePath,
        most: u64,
    ) -> Result<Result<(Vec<u8>, Stamp), StrayKind>, Error> {
        let read =
            self.root.folder_of(path).and_then(|folder| folder.read(&name(path.name())?, most));
        match read {
            Ok(Some(read)) => Ok(Ok(read)),
            Ok(None) => Ok(Err(StrayKind::Large)),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                Ok(Err(StrayKind::Closed))
            }
            Err(error) => Err(Error::disk("read a file")(error)),
        }
    }

    fn walk(&self, most: usize) -> Result<Walked, Error> {
        let mut walked = Walked::default();
        // Paths are short, so this is never deep.
        let mut folders: Vec<Option<TreePath>> = vec![None];
        while let Some(folder) = folders.pop() {
            self.walk_one(folder.as_ref(), &mut walked, &mut folders)
                .map_err(Error::disk("look through a scratch folder"))?;
            if walked.names > most {
                return Err(Error::Invalid(format!(
                    "the command left more than {most} files and folders: delete what is not \
                     needed, or work in a folder outside of the tree"
                )));
            }
        }
        Ok(walked)
    }

    fn walk_one(
        &self,
        at: Option<&TreePath>,
        walked: &mut Walked,
        folders: &mut Vec<Option<TreePath>>,
    ) -> std::io::Result<()> {
        let (above, own) = match at {
            None => (None, self.root.folder(c".")),
            Some(at) => {
                let above = self.root.folder_of(at)?;
                let own = above.folder(&name(at.name())?);
                (at.folder(), own)
            }
        };
        let names = own.and_then(|own| own.names().map(|names| (own, names)));
        let (own, names) = match (names, at) {
            (Ok(listed), _) => listed,
            (Err(error), Some(at)) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                let name = name(at.name())?;
                walked.odd.push(Odd { folder: above, name, kind: StrayKind::Closed });
                return Ok(());
            }
            (Err(error), _) => return Err(error),
        };
        walked.names += names.len();
        for name in names {
            let path = name.to_str().ok().and_then(|name| match at {
                Some(at) => format!("{at}/{name}").parse().ok(),
                None => name.parse().ok(),
            });
            let path: Option<TreePath> = path;
            let kind = match (own.kind(&name)?, path) {
                (None, _) => continue,
                (Some(Kind::Link), _) => StrayKind::Link,
                (Some(Kind::Special), _) => StrayKind::Special,
                (Some(Kind::File(_) | Kind::Folder), None) => StrayKind::Name,
                (Some(Kind::File(stamp)), Some(path)) => {
                    walked.files.insert(path, stamp);
                    continue;
                }
                (Some(Kind::Folder), Some(path)) => {
                    folders.push(Some(path));
                    continue;
                }
            };
            walked.odd.push(Odd { folder: at.cloned(), name, kind });
        }
        Ok(())
    }
}

impl From<Listed> for Missing {
    fn from(file: Listed) -> Self {
        let second = file.changed_at.as_second();
        Self { path: file.path, hash: file.hash, size: file.size, second }
    }
}

impl Missing {
    fn of(path: &TreePath, held: &Held) -> Self {
        Self { path: path.clone(), hash: held.hash, size: held.stamp.size, second: held.second }
    }
}
