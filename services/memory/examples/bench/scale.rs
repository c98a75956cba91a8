//! Many small tenants and a large one: the same answers as by looking at everything, and how soon.
//!
//! The texts are of made-up words that occur as words do, a few often and many seldom; what is
//! measured is the store, so the embedder is the one without a model. One memory searches the large
//! tenant by its index; another, on the same database, looks at all vectors of everybody.

use std::{collections::BTreeSet, fmt::Write as _, time::Instant};

use holdfast_proto::memory::v1 as pb;
use holdfast_types::{AgentId, TenantId};
use memory::Engine;

use crate::mesh::{self, Times, add, ask, embedded};

/// How many words there are, and how many a unit has.
const WORDS: u64 = 20_000;
const LENGTH: usize = 60;
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

    fn text(&mut self, words: usize) -> String {
        (0..words).map(|_| self.word()).collect::<Vec<_>>().join(" ")
    }
}

struct Tenant {
    id: TenantId,
    who: pb::Who,
    units: u64,
}

impl Tenant {
    fn text(&self, n: u64) -> String {
        Numbers(self.units * 1_000_003 + n * 7_919).text(LENGTH)
    }

    /// Some words of one unit, and some others.
    fn question(&self, n: u64) -> String {
        let of = (n * 2_654_435_761) % self.units;
        let text = self.text(of);
        let some: Vec<&str> = text.split(' ').skip(10).take(6).collect();
        format!("{} {}", some.join(" "), Numbers(n).text(2))
    }
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
    for tenant in &tenants {
        let turns: Vec<pb::Turn> = (0..tenant.units)
            .map(|n| pb::Turn { r#ref: n.to_string(), text: tenant.text(n), ..pb::Turn::default() })
            .collect();
        add(&served.memory, tenant.id, &tenant.who, "s", &turns).await?;
    }
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
    for (name, tenants, asked) in [("small", few, ASKED), ("large", many, ASKED_LARGE)] {
        let (mut same, mut all, mut worst) = (0, 0, 1.0_f64);
        let (mut times, mut exact_times) = (Times::default(), Times::default());
        let mut how = BTreeSet::new();
        for tenant in tenants {
            let before = (same, all);
            // What is known of a tenant is read with the first question, and the buffers fill.
            ask(&served.memory, tenant.id, &tenant.who, "warm", 10).await?;
            for n in 0..asked {
                let question = tenant.question(n);
                let (found, took) =
                    ask(&served.memory, tenant.id, &tenant.who, &question, 10).await?;
                let (wanted, exactly) =
                    ask(&exact.memory, tenant.id, &tenant.who, &question, 10).await?;
                times.add(took);
                exact_times.add(exactly);
                how.insert(found.how.clone());
                let ids: BTreeSet<&str> = found.hits.iter().map(|hit| hit.id.as_str()).collect();
                all += wanted.hits.len();
                same += wanted.hits.iter().filter(|hit| ids.contains(hit.id.as_str())).count();
            }
            worst = worst.min(share(same - before.0, all - before.1));
        }
        writeln!(
            out,
            "{name}: by {how:?}, recall@10 against exact {:.4}, the worst tenant {worst:.4}, {} (exact {})",
            share(same, all),
            times.told(),
            exact_times.told()
        )?;
    }
    Ok(out)
}

fn share(some: usize, all: usize) -> f64 {
    let of = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    if all == 0 { 1.0 } else { of(some) / of(all) }
}
