//! Many small tenants and a large one: the same answers as by looking at everything, and how soon.
//!
//! The texts are of made-up words that occur as words do: a few often and many seldom, and half of
//! a text's are those of its topic, which many texts share. (Without topics all vectors would be
//! about equally far from each other, which vectors of texts are not, and no index finds the nearest
//! of such.) What is measured is the store, so the embedder is the one without a model.
//!
//! One memory searches the large tenant by its index; another, on the same database, looks at all
//! vectors of everybody, after it.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    time::{Duration, Instant},
};

use holdfast_proto::memory::v1 as pb;
use holdfast_types::{AgentId, TenantId};
use memory::Engine;

use crate::mesh::{self, Served, Times, add, ask, embedded, say};

/// How many words there are, and how many a unit has.
const WORDS: u64 = 20_000;
const LENGTH: usize = 60;
/// How many topics there are, and how many words each has of its own.
const TOPICS: u64 = 2_000;
const OF_TOPIC: u64 = 120;
/// How many questions each of the tenants is asked, and the large one.
const ASKED: u64 = 4;
const ASKED_LARGE: u64 = 300;

/// A small generator: the same numbers everywhere.
struct Numbers(u64);

impl Numbers {
    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A word: the more often the smaller its number.
    fn word(&mut self) -> String {
        let bound = 1 + self.next() % WORDS;
        let bound = 1 + self.next() % bound;
        format!("w{}", self.next() % bound)
    }

    /// Words at large, and words of the topic, a few of which occur in most texts of it.
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

    /// Some words of one unit, and two others.
    fn question(&self, n: u64) -> String {
        let of = (n * 2_654_435_761) % self.units;
        let text = self.text(of);
        let some: Vec<&str> = text.split(' ').skip(10).take(6).collect();
        let mut others = Numbers(n);
        format!("{} {} {}", some.join(" "), others.word(), others.word())
    }
}

/// The answers to a tenant's questions, each as the ids of what was found.
type Answers = Vec<Vec<String>>;

/// What was asked of some tenants.
#[derive(Default)]
struct Asked {
    answers: Vec<Answers>,
    times: Times,
    how: BTreeSet<String>,
}

async fn ask_all(served: &Served, tenants: &[Tenant], questions: u64) -> anyhow::Result<Asked> {
    let mut asked = Asked::default();
    for tenant in tenants {
        // What is known of a tenant is read with the first question, and the buffers fill.
        for n in 0..3 {
            ask(&served.memory, tenant.id, &tenant.who, &tenant.question(questions + n), 10)
                .await?;
        }
        let mut answers = Answers::new();
        for n in 0..questions {
            let question = tenant.question(n);
            let (found, took) = ask(&served.memory, tenant.id, &tenant.who, &question, 10).await?;
            asked.times.add(took);
            asked.how.insert(found.how);
            answers.push(found.hits.into_iter().map(|hit| hit.id).collect());
        }
        asked.answers.push(answers);
    }
    Ok(asked)
}

/// The share of the wanted that was found, of all tenants and of the worst.
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
    let began = Instant::now();
    put(&served, &tenants).await?;
    let mut searched = BTreeSet::new();
    for tenant in &tenants {
        searched.insert(embedded(&served.memory, tenant.id).await?.search);
    }
    let ingest = began.elapsed();

    config.memory.index_above = 100_000;
    let exact = mesh::serve(config).await?;
    let mut out = String::new();
    writeln!(out, "{small} tenants of {each} units and one of {large}, searched {searched:?}")?;
    writeln!(out, "ingest {:.1} s", ingest.as_secs_f64())?;
    let (few, many) = tenants.split_at(tenants.len() - 1);
    for (name, tenants, questions) in [("small", few, ASKED), ("large", many, ASKED_LARGE)] {
        say(&format!("asking the {name}"))?;
        let mut asked = ask_all(&served, tenants, questions).await?;
        let mut wanted = ask_all(&exact, tenants, questions).await?;
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

/// Puts everything, and says how far it is.
async fn put(served: &Served, tenants: &[Tenant]) -> anyhow::Result<()> {
    let all: u64 = tenants.iter().map(|tenant| tenant.units).sum();
    let (mut done, mut told) = (0, Instant::now());
    for tenant in tenants {
        let mut next = 0;
        while next < tenant.units {
            let end = tenant.units.min(next + 512);
            let turns: Vec<pb::Turn> = (next..end)
                .map(|n| pb::Turn {
                    r#ref: n.to_string(),
                    text: tenant.text(n),
                    ..pb::Turn::default()
                })
                .collect();
            add(&served.memory, tenant.id, &tenant.who, "s", &turns).await?;
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

fn share(some: usize, all: usize) -> f64 {
    let of = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    if all == 0 { 1.0 } else { of(some) / of(all) }
}
