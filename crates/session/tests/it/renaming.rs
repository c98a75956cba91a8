//! Conversations that get another key, because accounts or people became one.

use holdfast_session::KeyChanges;

use crate::world::World;

#[tokio::test]
async fn a_renamed_conversation_has_the_kind_of_its_key_and_only_a_channels_own_is_renamed()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    for name in ["a", "b"] {
        ada.say(name, name, "hello").await?;
    }
    world
        .admin(
            "update session.sessions
             set key = 'agent:main:dm:any:' || split_part(key, ':', 2), kind = 'dm',
                 last_target = jsonb_build_object('channel', 'telegram')",
        )
        .await?;
    let changes = |channel: Option<&str>, name: &str| KeyChanges {
        channel: channel.map(str::to_owned),
        keys: vec![(format!("agent:main:dm:any:{name}"), format!("agent:main:api:{name}"))],
    };
    let rename = async |changes: KeyChanges| {
        world.sessions.settings().rename_sessions(ada.id, &changes).await
    };

    let renamed = [
        rename(changes(Some("discord"), "a")).await?,
        rename(changes(Some("telegram"), "a")).await?,
        rename(changes(None, "b")).await?,
        rename(changes(None, "b")).await?,
    ];

    assert_eq!(renamed, [0, 1, 1, 0]);
    let named = "select count(*) from session.sessions where kind = 'api' and key ~ ':api:[ab]$'";
    assert_eq!(world.number(named).await?, 2);
    Ok(())
}
