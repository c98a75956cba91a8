//! Registry of a local folder with a subfolder for each skill, offered by the operator to all
//! tenants.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use futures::future::BoxFuture;

use super::{Registry, SkillHit, SkillVersionMeta, Verdict, http::unavailable};
use crate::{Download, Error, Limits, Manifest, SkillName};

/// Maximum nesting of a skill's folders.
const MAX_FOLDER_DEPTH: usize = 16;

/// Folder with a subfolder for each skill.
#[derive(Debug, Clone)]
pub struct DirectoryRegistry {
    name: String,
    path: PathBuf,
}

impl DirectoryRegistry {
    #[must_use]
    pub fn new(name: &str, path: &Path) -> Self {
        Self { name: name.to_owned(), path: path.to_owned() }
    }

    /// Runs file operations on the blocking pool.
    async fn run_blocking<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Self) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let this = self.clone();
        let done = tokio::task::spawn_blocking(move || look(&this)).await;
        done.map_err(|error| Error::Broken(error.into()))?
    }

    fn manifest(&self, slug: &SkillName) -> Result<Manifest, Error> {
        let file = self.path.join(slug.as_str()).join("SKILL.md");
        match fs::read(file) {
            Ok(text) => Manifest::read(&format!("{slug}/SKILL.md"), &text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Error::NotFound {
                registry: self.name.clone(),
                what: format!("skill `{slug}`"),
            }),
            Err(error) => Err(self.folder_error(&error)),
        }
    }

    fn find(&self, query: &str, limit: usize) -> Result<Vec<SkillHit>, Error> {
        let words: Vec<String> =
            query.to_lowercase().split_whitespace().map(str::to_owned).collect();
        let mut hits = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(|error| self.folder_error(&error))? {
            let entry = entry.map_err(|error| self.folder_error(&error))?;
            let named = entry.file_name();
            let Some(slug) = named.to_str().and_then(|name| name.parse::<SkillName>().ok()) else {
                continue;
            };
            // An invalid skill is skipped.
            let Ok(manifest) = self.manifest(&slug) else { continue };
            let score = relevance(&manifest, &words);
            if score > 0.0 {
                hits.push(SkillHit {
                    score,
                    title: slug.to_string(),
                    slug,
                    summary: manifest.description,
                    version: manifest.version,
                    registry: self.name.clone(),
                });
            }
        }
        hits.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.slug.cmp(&b.slug)));
        hits.truncate(limit);
        Ok(hits)
    }

    fn files(&self, slug: &SkillName) -> Result<Vec<(String, Vec<u8>)>, Error> {
        let (mut files, mut bytes) = (Vec::new(), 0);
        self.walk(&self.path.join(slug.as_str()), "", &mut files, &mut bytes)?;
        Ok(files)
    }

    fn walk(
        &self,
        folder: &Path,
        below: &str,
        files: &mut Vec<(String, Vec<u8>)>,
        bytes: &mut u64,
    ) -> Result<(), Error> {
        let limits = Limits::default();
        let too_much =
            || Error::Archive("it has more than a skill may have: leave something out".to_owned());
        if below.matches('/').count() >= MAX_FOLDER_DEPTH {
            return Err(too_much());
        }
        for entry in fs::read_dir(folder).map_err(|error| self.folder_error(&error))? {
            let entry = entry.map_err(|error| self.folder_error(&error))?;
            let name = entry.file_name();
            let path = format!("{below}{}", name.to_string_lossy());
            // `DirEntry::file_type` does not follow links.
            let kind = entry.file_type().map_err(|error| self.folder_error(&error))?;
            if kind.is_dir() {
                self.walk(&entry.path(), &format!("{path}/"), files, bytes)?;
            } else if kind.is_file() {
                let size = entry.metadata().map_err(|error| self.folder_error(&error))?.len();
                *bytes = bytes.saturating_add(size);
                if *bytes > limits.total || files.len() >= limits.files {
                    return Err(too_much());
                }
                let content = fs::read(entry.path()).map_err(|error| self.folder_error(&error))?;
                files.push((path, content));
            } else {
                let shown = crate::name::escape_untrusted(&path);
                return Err(Error::Archive(format!("`{shown}` is a link or a device")));
            }
        }
        Ok(())
    }

    fn folder_error(&self, error: &io::Error) -> Error {
        unavailable(&self.name, format!("its folder cannot be read: {}", error.kind()))
    }
}

/// Share of the query's words that the skill's name (1 point) or its description and tags (half a
/// point) contain.
fn relevance(manifest: &Manifest, words: &[String]) -> f64 {
    let name = manifest.name.key();
    let about = format!("{} {}", manifest.description, manifest.tags.join(" ")).to_lowercase();
    let mut points = 0.0;
    for word in words {
        if name.contains(word.as_str()) {
            points += 1.0;
        } else if about.contains(word.as_str()) {
            points += 0.5;
        }
    }
    if words.is_empty() {
        0.0
    } else {
        points / f64::from(u32::try_from(words.len()).unwrap_or(u32::MAX))
    }
}

impl Registry for DirectoryRegistry {
    fn name(&self) -> &str {
        &self.name
    }

    fn search<'a>(
        &'a self,
        query: &'a str,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<SkillHit>, Error>> {
        let query = query.to_owned();
        Box::pin(self.run_blocking(move |this| this.find(&query, limit)))
    }

    fn meta<'a>(
        &'a self,
        slug: &'a SkillName,
        version: Option<&'a str>,
    ) -> BoxFuture<'a, Result<SkillVersionMeta, Error>> {
        Box::pin(async move {
            let wanted = slug.clone();
            let manifest = self.run_blocking(move |this| this.manifest(&wanted)).await?;
            if version.is_some() && version != manifest.version.as_deref() {
                return Err(Error::NotFound {
                    registry: self.name.clone(),
                    what: format!("other version of `{slug}` than the one that it has"),
                });
            }
            // The operator chose the skills in this folder.
            Ok(SkillVersionMeta { version: manifest.version, verdict: Verdict::Clean })
        })
    }

    fn download<'a>(
        &'a self,
        slug: &'a SkillName,
        _: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Download, Error>> {
        let slug = slug.clone();
        Box::pin(async move {
            self.run_blocking(move |this| this.files(&slug)).await.map(Download::Files)
        })
    }
}
