//! Benchmark with many small tenants and a large one: recall of the index against the exact scan,
//! and latency; also with filters and with many users of one agent.
//!
//! Texts consist of made-up words with a natural frequency distribution; half of a text's words
//! belong to its topic, which many texts share. (Without topics all vectors would be about equally
//! far from each other, unlike those of real texts, and no index could find the nearest.) The store
//! is measured, so the embedder is the one without a model.
//!
//! One memory service searches the large tenant by its index; then another one, on the same
//! database, scans all vectors.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    time::{Duration, Instant},
};

use holdfast_proto::memory::v1 as pb;
use holdfast_types::{AgentId, TenantId};
use memory::Engine;

use crate::mesh::{self, Served, Times, add, ask, embedded, say};

/// Number of words, and words per unit.
const WORDS: u64 = 20_000;
const LENGTH: usize = 60;
/// Number of topics, and words per topic.
const TOPICS: u64 = 2_000;
const OF_TOPIC: u64 = 120;
/// Questions per small tenant, and for the large one.
const ASKED: u64 = 4;
const ASKED_LARGE: u64 = 300;
/// Questions with each filter.
const ASKED_FILTERED: u64 = 100;
/// Turns per conversation of the large tenant, one minute apart.
const CONVERSATION: u64 = 500;
const BEGAN: i64 = 1_700_000_000;
/// Memories of the large tenant, in addition to its turns.
const MEMORIES: u64 = 300;
/// Users of the shared agent, and units per user.
const USERS: u64 = 100;
const OF_USER: u64 = 300;

/// Deterministic random number generator.
struct Numbers(u64);

impl Numbers {
    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a word; smaller numbers are more frequent.
    fn word(&mut self) -> String {
        let bound = 1 + self.next() % WORDS;
        let bound = 1 + self.next() % bound;
        format!("w{}", self.next() % bound)
    }

    /// Returns general words and words of the topic, some of which occur in most of its texts.
    fn text(&mut self, words: usize, topic: u64) -> String {
        let mut of_topic = || {
            let bound = 1 + self.next() % OF_TOPIC;
            let which = self.next() % bound;
            format!("w{}", Numbers(topic * OF_TOPIC + which).next() % WORDS)
        };
        let topical: Vec<String> = (0..words / 2).map(|_| of_topic()).collect();
        let other = (0..words.div_ceil(2)).map(|_| self.word());
        let mut mixed = Vec::with_capacity(words);
        let mut topical = topical.into_iter();
        for word in other {
            mixed.push(word);
            mixed.extend(topical.next());
        }
        mixed.join(" ")
    }
}

struct Tenant {
    id: TenantId,
    who: pb::Who,
    units: u64,
}

impl Tenant {
    fn text(&self, n: u64) -> String {
        let mut numbers = Numbers(self.units * 1_000_003 + n * 7_919);
        let topic = numbers.next() % TOPICS;
        numbers.text(LENGTH, topic)
    }

    /// Returns some words of one unit and two others.
    fn question(&self, n: u64) -> String {
        let of = (n * 2_654_435_761) % self.units;
        let text = self.text(of);
        let some: Vec<&str> = text.split(' ').skip(10).take(6).collect();
        let mut others = Numbers(n);
        format!("{} {} {}", some.join(" "), others.word(), others.word())
    }
}

/// Answers to a tenant's questions, as ids of hits.
type Answers = Vec<Vec<String>>;

/// Results of some tenants' questions.
#[derive(Default)]
struct Asked {
    answers: Vec<Answers>,
    times: Times,
    how: BTreeSet<String>,
}

type Filter = fn(&Tenant, u64) -> Option<pb::Filter>;

/// Filters for the large tenant's questions.
const FILTERS: [(&str, Filter); 6] = [
    ("one conversation of a hundred", |tenant, n| {
        let session = format!("s{}", (n * 37) % tenant.units.div_ceil(CONVERSATION));
        Some(pb::Filter { session, ..pb::Filter::default() })
    }),
    ("a hundredth of the time", |tenant, n| Some(time(tenant, n, 100))),
    ("a fifteenth of the time", |tenant, n| Some(time(tenant, n, 15))),
    ("a third of the time", |tenant, n| Some(time(tenant, n, 3))),
    ("memories", |_, _| {
        Some(pb::Filter { kinds: vec![pb::Kind::Memory.into()], ..pb::Filter::default() })
    }),
    ("all but ten conversations", |_, n| {
        let not_sessions = (n..n + 10).map(|n| format!("s{n}")).collect();
        Some(pb::Filter { not_sessions, ..pb::Filter::default() })
    }),
];

/// Returns a part of the period that the tenant's turns cover.
fn time(tenant: &Tenant, n: u64, part: u64) -> pb::Filter {
    let long = tenant.units / part;
    let from = (n * 7_919) % (tenant.units - long);
    let (since, until) = (moment(from), moment(from + long));
    pb::Filter { since, until, ..pb::Filter::default() }
}

fn moment(n: u64) -> Option<prost_types::Timestamp> {
    Some(prost_types::Timestamp { seconds: BEGAN + i64::try_from(n).ok()? * 60, nanos: 0 })
}

async fn ask_all(
    served: &Served,
    tenants: &[Tenant],
    questions: u64,
    filter: Filter,
) -> anyhow::Result<Asked> {
    let mut asked = Asked::default();
    for tenant in tenants {
        // The first question fills the caches.
        for n in 0..3 {
            let (question, filter) = (tenant.question(questions + n), filter(tenant, n));
            ask(&served.memory, tenant.id, &tenant.who, &question, 10, filter).await?;
        }
        let mut answers = Answers::new();
        for n in 0..questions {
            let question = tenant.question(n);
            let filter = filter(tenant, n);
            let (found, took) =
                ask(&served.memory, tenant.id, &tenant.who, &question, 10, filter).await?;
            asked.times.add(took);
            asked.how.insert(found.how);
            answers.push(found.hits.into_iter().map(|hit| hit.id).collect());
        }
        asked.answers.push(answers);
    }
    Ok(asked)
}

/// Returns the recall over all tenants and that of the worst.
fn recall(found: &[Answers], wanted: &[Answers]) -> (f64, f64) {
    let (mut same, mut all, mut worst) = (0, 0, 1.0_f64);
    for (found, wanted) in found.iter().zip(wanted) {
        let before = (same, all);
        for (found, wanted) in found.iter().zip(wanted) {
            all += wanted.len();
            same += wanted.iter().filter(|id| found.contains(id)).count();
        }
        worst = worst.min(share(same - before.0, all - before.1));
    }
    (share(same, all), worst)
}

pub async fn run(small: u64, each: u64, large: u64) -> anyhow::Result<String> {
    let database = mesh::database().await?;
    let mut config = mesh::config(&database)?;
    config.memory.embedding.engine = Engine::Hashed;
    let served = mesh::serve(config.clone()).await?;
    let tenant = |units| Tenant {
        id: TenantId::generate(),
        who: pb::Who { agent: AgentId::generate().to_string(), ..pb::Who::default() },
        units,
    };
    let mut tenants: Vec<Tenant> = (0..small).map(|_| tenant(each)).collect();
    tenants.push(tenant(large));
    let shared = tenant(OF_USER);
    let user = |n| {
        let who = pb::Who { user: format!("u{n}"), ..shared.who.clone() };
        Tenant { id: shared.id, who, units: OF_USER + n }
    };
    let users: Vec<Tenant> = (0..USERS).map(user).collect();
    let began = Instant::now();
    put(&served, tenants.iter().chain(&users)).await?;
    let (few, many) = tenants.split_at(tenants.len() - 1);
    for tenant in many {
        remember(&served, tenant).await?;
    }
    let mut searched = BTreeSet::new();
    for tenant in tenants.iter().chain(&users[..1]) {
        searched.insert(embedded(&served.memory, tenant.id).await?.search);
    }
    let ingest = began.elapsed();

    config.memory.index_above = 100_000;
    let exact = mesh::serve(config).await?;
    let mut out = String::new();
    writeln!(out, "{small} tenants of {each} units and one of {large}, searched {searched:?}")?;
    writeln!(out, "ingest {:.1} s", ingest.as_secs_f64())?;
    let all: Filter = |_, _| None;
    let filtered = FILTERS.map(|(name, filter)| (name, many, ASKED_FILTERED, filter));
    for (name, tenants, questions, filter) in [
        ("small", few, ASKED, all),
        ("users of one agent", &users, ASKED, all),
        ("large", many, ASKED_LARGE, all),
    ]
    .into_iter()
    .chain(filtered)
    {
        say(&format!("asking: {name}"))?;
        let mut asked = ask_all(&served, tenants, questions, filter).await?;
        let mut wanted = ask_all(&exact, tenants, questions, filter).await?;
        let (recall, worst) = recall(&asked.answers, &wanted.answers);
        writeln!(
            out,
            "{name}: by {:?}, recall@10 against exact {recall:.4}, the worst tenant {worst:.4}, {} (exact {})",
            asked.how,
            asked.times.told(),
            wanted.times.told()
        )?;
    }
    Ok(out)
}

/// Stores all units and prints progress.
async fn put<'a>(
    served: &Served,
    tenants: impl Iterator<Item = &'a Tenant> + Clone,
) -> anyhow::Result<()> {
    let all: u64 = tenants.clone().map(|tenant| tenant.units).sum();
    let (mut done, mut told) = (0, Instant::now());
    for tenant in tenants {
        let mut next = 0;
        while next < tenant.units {
            let end = tenant.units.min(next + CONVERSATION);
            let turns: Vec<pb::Turn> = (next..end)
                .map(|n| pb::Turn {
                    r#ref: n.to_string(),
                    text: tenant.text(n),
                    at: moment(n),
                    ..pb::Turn::default()
                })
                .collect();
            let session = format!("s{}", next / CONVERSATION);
            add(&served.memory, tenant.id, &tenant.who, &session, &turns).await?;
            done += end - next;
            next = end;
            if told.elapsed() > Duration::from_secs(5) {
                told = Instant::now();
                say(&format!("{done} of {all} units are put"))?;
            }
        }
    }
    Ok(())
}

/// Stores memories of a tenant's agent.
async fn remember(served: &Served, tenant: &Tenant) -> anyhow::Result<()> {
    for n in 0..MEMORIES {
        let item = pb::NewItem {
            kind: pb::Kind::Memory.into(),
            r#type: "fact".to_owned(),
            content: tenant.text(tenant.units + n),
            provenance: mesh::from(),
            ..pb::NewItem::default()
        };
        let request = pb::PutItemsRequest {
            who: Some(tenant.who.clone()),
            items: vec![item],
            ..pb::PutItemsRequest::default()
        };
        served.memory.put_items(tenant.id, request).await?;
    }
    Ok(())
}

fn share(some: usize, all: usize) -> f64 {
    let of = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    if all == 0 { 1.0 } else { of(some) / of(all) }
}
