//! `holdfast kb`.

mod proposals;

use std::{
    fs,
    io::{self, Read as _},
};

use clap::Subcommand;
use holdfast_proto::gateway::v1::{
    Article, ArticleTags, FoundArticle, GetArticleRequest, IngestArticleRequest,
    ListArticleVersionsRequest, ListArticlesRequest, RemoveArticleRequest, SearchArticlesRequest,
    UpdateArticleRequest,
};
use serde_json::{Value, json};

use super::memory::{counts, rounded, source};
use crate::{
    client::{Client, MAX_ARTICLE_BYTES},
    error::Error,
    screen::{Screen, progress},
    view::time,
};

/// Maximum size of a file, in bytes: its message also has its title, tags and source.
const MAX_FILE_BYTES: usize = MAX_ARTICLE_BYTES - 64 * 1024;

/// Progress text while the memory service works.
const INDEXING: &str = "reading and indexing";

const COLUMNS: [&str; 7] = ["id", "version", "scope", "agent", "title", "tags", "updated_at"];
const SEARCH_COLUMNS: [&str; 6] = ["score", "title", "headings", "text", "scope", "id"];

#[derive(Debug, Subcommand)]
pub enum Kb {
    /// Search the knowledge base by words and meaning
    Search {
        /// Words or a question to search for
        query: String,
        /// Search as this agent [default: articles for all agents]
        #[arg(long, default_value = "", hide_default_value = true)]
        agent: String,
        /// Show only articles with this tag; may be repeated
        #[arg(long = "tag")]
        tags: Vec<String>,
        /// Maximum number of articles to find
        #[arg(long, default_value_t = 10)]
        limit: u32,
    },
    /// Add an article from a file: text, HTML, PDF, Word, Excel, PowerPoint, OpenDocument, RTF, EPUB, mail
    ///
    /// holdfast kb ingest manual.pdf --source "the maker's site" --tag printer
    #[command(visible_alias = "add")]
    Ingest {
        /// The local file; `-` is stdin
        from: String,
        /// Source of the article: an address, a file, a person [default: the file's name]
        #[arg(long, default_value = "", hide_default_value = true)]
        source: String,
        /// Title of the article [default: its first heading]
        #[arg(long, default_value = "", hide_default_value = true)]
        title: String,
        /// Media type, for example `text/html` [default: guessed]
        #[arg(long = "type", default_value = "", hide_default_value = true)]
        media_type: String,
        /// Tag of the article; may be repeated
        #[arg(long = "tag")]
        tags: Vec<String>,
        /// Author that is recorded with the article
        #[arg(long, default_value = "", hide_default_value = true)]
        author: String,
        /// Add it for this agent only [default: for all agents]
        #[arg(long, default_value = "", hide_default_value = true)]
        agent: String,
    },
    /// Change an article; earlier versions are kept
    Update {
        /// Id of the article, `doc_…`
        id: String,
        /// The local file with the new content; `-` is stdin [default: unchanged]
        from: Option<String>,
        /// Source of the change: an address, a file, a person
        #[arg(long)]
        source: String,
        /// New title of the article [default: unchanged]
        #[arg(long, default_value = "", hide_default_value = true)]
        title: String,
        /// Media type of the new content [default: guessed]
        #[arg(long = "type", default_value = "", hide_default_value = true)]
        media_type: String,
        /// New tags; may be repeated [default: unchanged]
        #[arg(long = "tag")]
        tags: Vec<String>,
        /// Version on which the change is based; refused if a newer one exists
        #[arg(long, value_name = "VERSION", default_value_t = 0, hide_default_value = true)]
        base: u32,
    },
    /// Show an article with its text
    Get {
        /// Id of the article, `doc_…`
        id: String,
        /// Version of the article [default: the newest]
        #[arg(long, value_name = "VERSION", default_value_t = 0, hide_default_value = true)]
        at: u32,
    },
    /// List the articles, newest first
    List {
        /// Show only articles of this agent [default: all]
        #[arg(long, default_value = "", hide_default_value = true)]
        agent: String,
        /// Show only articles with this tag; may be repeated
        #[arg(long = "tag")]
        tags: Vec<String>,
        /// Maximum number of articles to list
        #[arg(long, default_value_t = 50)]
        limit: u32,
        /// Continue after this, the `next` of the previous list
        #[arg(long, default_value = "", hide_default_value = true)]
        after: String,
    },
    /// Delete an article with all its versions
    Rm {
        /// Id of the article, `doc_…`
        id: String,
    },
    /// List the versions of an article: author, time and source
    History {
        /// Id of the article, `doc_…`
        id: String,
    },
    #[command(flatten)]
    Proposed(proposals::ProposalCommand),
}

impl Kb {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        match self {
            Self::Search { query, agent, tags, limit } => {
                let request = SearchArticlesRequest { agent, query, limit, tags };
                let answer = client.knowledge().search_articles(client.request(request)).await;
                let found = client.answer(answer)?.found;
                screen.list(&SEARCH_COLUMNS, found.iter().map(found_view).collect())
            }
            Self::Ingest { from, source, title, media_type, tags, author, agent } => {
                let content = read_local(&from)?;
                let source = match (source.as_str(), from.as_str()) {
                    ("", "-") => {
                        let why = "say where it is from: --source";
                        return Err(Error::Usage(why.to_owned()));
                    }
                    ("", file) => file.to_owned(),
                    _ => source,
                };
                let request = IngestArticleRequest {
                    agent,
                    title,
                    content,
                    media_type: media_type_of(media_type, &from),
                    tags,
                    source,
                    author,
                    ..IngestArticleRequest::default()
                };
                progress::begin(INDEXING);
                let added = client.knowledge().ingest_article(client.request(request)).await;
                let article = client.answer(added)?.article.unwrap_or_default();
                screen.one(&COLUMNS, &view(&article))
            }
            Self::Update { id, from, source, title, media_type, tags, base } => {
                let content = from.as_deref().map(read_local).transpose()?.unwrap_or_default();
                let media_type = media_type_of(media_type, from.as_deref().unwrap_or_default());
                let tags = (!tags.is_empty()).then_some(ArticleTags { tags });
                let request = UpdateArticleRequest {
                    id,
                    content,
                    media_type,
                    title,
                    tags,
                    source,
                    version: base,
                    ..UpdateArticleRequest::default()
                };
                progress::begin(INDEXING);
                let changed = client.knowledge().update_article(client.request(request)).await;
                let article = client.answer(changed)?.article.unwrap_or_default();
                screen.one(&COLUMNS, &view(&article))
            }
            Self::Get { id, at } => {
                let request = client.request(GetArticleRequest { id, version: at });
                let got = client.answer(client.knowledge().get_article(request).await)?;
                let article = got.article.unwrap_or_default();
                let mut view = view(&article);
                view["text"] = json!(article.text);
                screen.one(&COLUMNS, &view)
            }
            Self::List { agent, tags, limit, after } => {
                let request = ListArticlesRequest { agent, tags, limit, after };
                let listed = client.knowledge().list_articles(client.request(request)).await;
                let listed = client.answer(listed)?;
                screen.list(&COLUMNS, listed.articles.iter().map(view).collect())?;
                match listed.next.is_empty() || screen.is_json() {
                    true => Ok(()),
                    false => screen.note(&format!("more: --after {}", listed.next)),
                }
            }
            Self::Rm { id } => {
                let request = client.request(RemoveArticleRequest { id: id.clone() });
                client.answer(client.knowledge().remove_article(request).await)?;
                screen.done("removed", &json!({"removed": id}))
            }
            Self::History { id } => {
                let request = client.request(ListArticleVersionsRequest { id });
                let listed = client.knowledge().list_article_versions(request).await;
                let versions = client.answer(listed)?.versions;
                let columns = ["version", "updated_at", "author", "source", "accepted_by", "title"];
                screen.list(&columns, versions.iter().map(view).collect())
            }
            Self::Proposed(proposed) => proposed.run(client, screen).await,
        }
    }
}

/// Reads a local file, or stdin for `-`.
fn read_local(from: &str) -> Result<Vec<u8>, Error> {
    let read = |file: &mut dyn io::Read| {
        let (mut bytes, limit) = (Vec::new(), MAX_FILE_BYTES as u64);
        file.take(limit + 1).read_to_end(&mut bytes).map(|_| bytes)
    };
    let bytes = match from {
        "-" => read(&mut io::stdin()),
        from => fs::File::open(from).and_then(|mut file| read(&mut file)),
    };
    let bytes = bytes.map_err(|error| Error::Usage(format!("cannot read `{from}`: {error}")))?;
    if bytes.len() > MAX_FILE_BYTES {
        let size = fs::metadata(from).map_or_else(
            |_| format!("has more than {MAX_FILE_BYTES} bytes"),
            |file| format!("has {} bytes, and {MAX_FILE_BYTES} are the most", file.len()),
        );
        return Err(Error::Usage(format!("`{from}` {size}: split it into several articles")));
    }
    Ok(bytes)
}

/// Returns the given media type, or guesses it from the file name.
fn media_type_of(given: String, from: &str) -> String {
    if !given.is_empty() {
        return given;
    }
    let ending = from.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
    match ending.as_deref() {
        Some("md" | "markdown") => "text/markdown",
        Some("html" | "htm") => "text/html",
        Some("pdf") => "application/pdf",
        Some("txt") => "text/plain",
        Some("eml") => "message/rfc822",
        Some(_) | None => "",
    }
    .to_owned()
}

fn view(article: &Article) -> Value {
    json!({
        "id": article.id,
        "version": article.version,
        "scope": article.scope,
        "agent": article.agent,
        "title": article.title,
        "tags": article.tags,
        "author": article.author,
        "source": source(article.source.as_ref()),
        "created_at": time(article.created_at.as_ref()),
        "updated_at": time(article.updated_at.as_ref()),
        "chunks": article.chunks,
        "pending": article.pending,
        "masked": counts(&article.masked),
        "accepted_by": article.accepted_by,
    })
}

fn found_view(found: &FoundArticle) -> Value {
    json!({
        "score": rounded(found.score),
        "meaning": rounded(found.meaning),
        "words": rounded(found.words),
        "title": found.title,
        "headings": found.headings.join(" > "),
        "text": found.text,
        "scope": found.scope,
        "tags": found.tags,
        "source": source(found.source.as_ref()),
        "id": found.id,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state_dir::Scratch;

    #[test]
    fn a_file_that_is_too_large_is_refused_before_it_is_sent() {
        let scratch = Scratch::new();
        let path = scratch.0.path().join("manual.txt");
        fs::write(&path, vec![b'x'; MAX_FILE_BYTES + 1]).unwrap();
        let path = path.to_str().unwrap();

        let refused = read_local(path).unwrap_err().to_string();
        fs::write(path, vec![b'x'; MAX_FILE_BYTES]).unwrap();

        assert!(refused.contains("has 8323073 bytes, and 8323072 are the most"), "{refused}");
        assert_eq!(read_local(path).unwrap().len(), MAX_FILE_BYTES);
    }

    #[test]
    fn a_file_s_name_says_what_it_is_unless_one_says_otherwise() {
        for (given, from, expected) in [
            ("", "a.PDF", "application/pdf"),
            ("", "b.md", "text/markdown"),
            ("", "c.htm", "text/html"),
            ("", "offer.eml", "message/rfc822"),
            ("", "d", ""),
            ("", "-", ""),
            ("text/plain", "e.html", "text/plain"),
        ] {
            assert_eq!(media_type_of(given.to_owned(), from), expected, "{from}");
        }
    }
}
