//! Several registries, some of them slow or gone.

use std::sync::{LazyLock, atomic::Ordering};

use holdfast_types::{Fault as _, Kind};
use tokio::time::Instant;

use super::*;
use crate::registry::fake::Fake;

/// The tenant of all tests that need only one.
static ONE: LazyLock<TenantId> = LazyLock::new(TenantId::generate);

fn finder(fakes: Vec<Arc<Fake>>) -> Finder {
    let registries = fakes.into_iter().map(|fake| fake as Arc<dyn Registry>).collect();
    Finder::new(Registries::new(registries).unwrap())
}

fn fake(name: &'static str, found: &[(&'static str, f64)]) -> Fake {
    Fake { found: Ok(found.to_vec()), ..Fake::new(name) }
}

async fn found(finder: &Finder, query: &str, limit: usize) -> Result<SearchResult, Error> {
    finder.find(*ONE, &Policy::default(), query, limit).await
}

#[tokio::test(start_paused = true)]
async fn what_all_registries_find_is_merged_by_how_well_it_fits() {
    let one = fake("one", &[("a", 0.9), ("b", 0.2), ("c", f64::NAN)]);
    let two = fake("two", &[("d", 0.5), ("e", 0.9)]);
    let finder = finder(vec![Arc::new(one), Arc::new(two)]);

    let all = found(&finder, "x", 20).await.unwrap();
    let names: Vec<(&str, &str)> =
        all.hits.iter().map(|hit| (hit.slug.as_str(), hit.registry.as_str())).collect();
    assert_eq!(names, [("a", "one"), ("e", "two"), ("d", "two"), ("b", "one"), ("c", "one")]);
    assert_eq!(found(&finder, "x", 2).await.unwrap().hits, all.hits[..2]);
}

#[tokio::test(start_paused = true)]
async fn two_are_asked_at_once_and_each_has_a_minute() {
    let busy = Arc::default();
    let slow = |name, takes| {
        let takes = Duration::from_secs(takes);
        Arc::new(Fake { takes, busy: Arc::clone(&busy), ..fake(name, &[("a", 1.0)]) })
    };
    let finder =
        finder(vec![slow("one", 30), slow("two", 30), slow("three", 30), slow("four", 61)]);

    let started = Instant::now();
    let all = found(&finder, "x", 5).await.unwrap();

    assert_eq!(started.elapsed(), Duration::from_secs(90));
    assert_eq!(busy.lock().unwrap().1, 2);
    assert_eq!(all.hits.len(), 3);
    let why = "the registry `four` does not answer: it took longer than 60 s".to_owned();
    assert_eq!(all.failed, [("four".to_owned(), why)]);
}

#[tokio::test(start_paused = true)]
async fn a_whole_answer_is_kept_and_half_a_one_is_not() {
    let good = Arc::new(fake("good", &[("a", 1.0)]));
    let bad = Arc::new(Fake { found: Err("it is gone"), ..Fake::new("bad") });

    let whole = finder(vec![Arc::clone(&good)]);
    for _ in 0..2 {
        found(&whole, "read a pdf", 5).await.unwrap();
    }
    assert_eq!(good.searches.load(Ordering::SeqCst), 1);

    let half = finder(vec![Arc::clone(&good), bad]);
    for _ in 0..2 {
        assert_eq!(found(&half, "read a pdf", 5).await.unwrap().hits.len(), 1);
    }
    assert_eq!(good.searches.load(Ordering::SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn if_none_answers_that_is_an_error() {
    let gone = |name| Arc::new(Fake { found: Err("it is gone"), ..Fake::new(name) });

    let error = found(&finder(vec![gone("one"), gone("two")]), "x", 5).await.unwrap_err();

    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(error.to_string().contains("`two` does not answer: it is gone"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn only_registries_that_the_tenant_allows_are_asked() {
    let (one, two) = (Arc::new(fake("one", &[("a", 1.0)])), Arc::new(fake("two", &[("b", 1.0)])));
    let finder = finder(vec![Arc::clone(&one), two]);
    let tenant = TenantId::generate();
    let only_two = Policy { registries: Some(vec!["two".to_owned()]), ..Policy::default() };
    let none = Policy { enabled: false, ..Policy::default() };

    let hits = finder.find(tenant, &only_two, "x", 5).await.unwrap().hits;

    assert_eq!(hits.iter().map(|hit| hit.slug.as_str()).collect::<Vec<_>>(), ["b"]);
    assert_eq!(one.searches.load(Ordering::SeqCst), 0);
    let error = finder.find(tenant, &none, "x", 5).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Forbidden);
    // What one policy let it find is not told under another.
    assert_eq!(finder.find(tenant, &Policy::default(), "x", 5).await.unwrap().hits.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_question_and_a_limit_are_asked_for() {
    let finder = finder(vec![Arc::new(fake("one", &[]))]);

    for (query, limit) in [("", 5), (" \u{200b}\n", 5), ("x", 0), ("x", 21)] {
        assert_eq!(found(&finder, query, limit).await.unwrap_err().kind(), Kind::Invalid);
    }
    assert_eq!(found(&finder, &"x".repeat(401), 5).await.unwrap_err().kind(), Kind::Invalid);
    assert!(found(&finder, &"x".repeat(400), 20).await.is_ok());
}
