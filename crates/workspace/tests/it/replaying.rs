//! Property test: replaying a tree's history gives the tree itself.

use std::collections::BTreeMap;

use holdfast_workspace::Revision;
use proptest::{prelude::*, test_runner::TestRunner};

use crate::world::{World, by, delete, put};

/// Something that is done to a tree.
#[derive(Debug, Clone)]
enum Deed {
    Put(String, String),
    Delete(String),
    Restore(usize),
}

fn deed() -> impl Strategy<Value = Deed> {
    // Few names, so that they meet; some are folders of others.
    let name = "(a|b|a/b|a/b/c|é|日/x)";
    prop_oneof![
        4 => (name, "[xy]{0,3}").prop_map(|(name, text)| Deed::Put(name, text)),
        2 => name.prop_map(Deed::Delete),
        1 => any::<prop::sample::Index>().prop_map(|at| Deed::Restore(at.index(20))),
    ]
}

type Tree = BTreeMap<String, Vec<u8>>;

/// Does it to a tree of one's own, if it can be done.
fn expect(tree: &Tree, past: &[Tree], deed: &Deed) -> Option<Tree> {
    let mut after = tree.clone();
    match deed {
        Deed::Put(name, text) => {
            after.insert(name.clone(), text.clone().into_bytes());
            let clash = |a: &String, b: &String| b.starts_with(&format!("{a}/"));
            if after.keys().any(|a| after.keys().any(|b| clash(a, b))) {
                return None;
            }
        }
        Deed::Delete(name) => {
            after.remove(name)?;
        }
        Deed::Restore(to) => after = past.get(*to)?.clone(),
    }
    Some(after)
}

async fn replay(world: &World, deeds: &[Deed]) -> anyhow::Result<()> {
    let mut past = vec![Tree::new()];
    for deed in deeds {
        let now = past.last().cloned().unwrap_or_default();
        let done = match deed {
            Deed::Put(name, text) => world.commit(vec![put(name, text)?]).await,
            Deed::Delete(name) => world.commit(vec![delete(name)?]).await,
            Deed::Restore(to) => {
                let to = Revision::from(i64::try_from(*to)?);
                world.trees.restore(world.tenant, world.agent, &by("ada"), None, to).await
            }
        };
        let expected = expect(&now, &past, deed);
        anyhow::ensure!(done.is_ok() == expected.is_some(), "{deed:?}: {done:?}, {expected:?}");
        if let Some(after) = expected
            && after != now
        {
            past.push(after);
        }
    }
    for (at, expected) in past.iter().enumerate() {
        let there: Tree =
            world.tree(Some(Revision::from(i64::try_from(at)?))).await?.into_iter().collect();
        anyhow::ensure!(there == *expected, "revision {at}: {there:?}, {expected:?}");
    }
    let newest: Tree = world.tree(None).await?.into_iter().collect();
    anyhow::ensure!(Some(&newest) == past.last(), "{newest:?}");
    let head = world.trees.head(world.tenant, world.agent).await?;
    anyhow::ensure!(head.number() == i64::try_from(past.len() - 1)?, "{head}");
    let counted = newest.values().map(Vec::len).sum::<usize>() + newest.len();
    let agent = world.agent.as_uuid();
    let stored = world
        .number(&format!("select bytes + files from workspace.trees where agent_id = '{agent}'"))
        .await;
    anyhow::ensure!(past.len() == 1 || stored? == i64::try_from(counted)?);
    Ok(())
}

#[test]
fn the_changes_one_after_the_other_are_the_tree() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    let mut world = runtime.block_on(World::start())?;
    let mut runner = TestRunner::new(ProptestConfig { cases: 24, ..ProptestConfig::default() });
    let worlds = std::cell::RefCell::new(&mut world);
    let outcome = runner.run(&prop::collection::vec(deed(), 1..20), |deeds| {
        let mut world = worlds.borrow_mut();
        world.agent = holdfast_types::AgentId::generate();
        runtime
            .block_on(replay(&world, &deeds))
            .map_err(|error| TestCaseError::fail(error.to_string()))
    });
    outcome.map_err(|error| anyhow::anyhow!("{error}"))?;
    Ok(())
}
