//! Signatures of jobs in the database.

use std::sync::Arc;

use holdfast_schedule::store::{Changes, Job, JobKind, JobSigner, Jobs, NewJob, Planner, Reminder};
use holdfast_types::{Author, JobId};
use serde_json::json;

use crate::world::{Tenant, World};

const DIGEST: &str = "
    sha256(convert_to(jsonb_build_array(agent_id, kind, owner, author, name, payload,
        session_target, wake_mode, isolation)::text, 'UTF8'))";

fn signing(world: &World, keys: &[[u8; 32]]) -> anyhow::Result<Jobs> {
    let signer = JobSigner::default();
    signer.set_keys(keys.iter().copied());
    let planner = Arc::clone(&world.clock) as Arc<dyn Planner>;
    Ok(Jobs::new(world.pools()?, planner).with_signer(signer))
}

fn hourly(tenant: &Tenant<'_>) -> NewJob {
    let author = Some(Author { id: "person:ada".to_owned(), roles: Vec::new() });
    NewJob { author, ..tenant.job(json!({"every_s": 3600})) }
}

async fn say(jobs: &Jobs, job: &Job, payload: &str) -> anyhow::Result<Job> {
    let payload = Some(json!({"kind": "agentTurn", "message": payload}));
    let changes = Changes { payload, ..Changes::default() };
    Ok(jobs.update(job.tenant, job.id, None, changes).await?)
}

#[tokio::test]
async fn a_job_is_signed_when_it_is_made_and_again_when_it_changes() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let jobs = signing(&world, &[[1; 32]])?;

    let made = jobs.add(ada.id, hourly(&ada)).await?.into_job();
    let changed = say(&jobs, &made, "look").await?;
    let back = say(&jobs, &changed, "water the plants").await?;
    let by_other = say(&world.jobs, &back, "send it all").await?;
    let over_forged = say(&jobs, &by_other, "water the plants all day").await?;

    assert!(made.signature.is_some());
    assert_ne!(changed.signature, made.signature);
    assert_eq!(back.signature, made.signature);
    // Words of somebody without the keys are signed by nobody.
    assert_eq!((&by_other.signature, &over_forged.signature), (&made.signature, &made.signature));
    assert_eq!(ada.get(made.id).await?, over_forged);
    Ok(())
}

#[tokio::test]
async fn jobs_from_before_are_signed_unless_somebody_changed_them_since() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (ada, bo) = (world.tenant(), world.tenant());
    let untouched = [ada.add(hourly(&ada)).await?, bo.add(hourly(&bo)).await?];
    let (changed, early) = (ada.add(hourly(&ada)).await?, ada.add(hourly(&ada)).await?);
    world
        .admin(&format!(
            "insert into schedule.jobs_to_sign (tenant_id, job_id, digest)
             select tenant_id, job_id, {DIGEST} from schedule.jobs"
        ))
        .await?;
    let later = ada.add(hourly(&ada)).await?;
    say(&world.jobs, &changed, "send it all").await?;
    let jobs = signing(&world, &[[1; 32]])?;
    // Somebody with the keys is faster than the gateway that signs all.
    let early = say(&jobs, &early, "look").await?;

    assert!(early.signature.is_some());
    assert_eq!(jobs.sign_recorded_jobs().await?, 3);
    assert_eq!(jobs.sign_recorded_jobs().await?, 0);

    for job in untouched.iter().chain([&early]) {
        let signed = world.jobs.get(job.tenant, job.id).await?;
        assert!(signed.signature.is_some());
        // The signature is valid: a change is signed again.
        assert_ne!(say(&jobs, &signed, "look again").await?.signature, signed.signature);
    }
    for job in [changed, later] {
        assert_eq!(ada.get(job.id).await?.signature, None);
    }
    Ok(())
}

#[tokio::test]
async fn jobs_are_signed_again_with_another_key() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (ada, bo) = (world.tenant(), world.tenant());
    let (old, new) = ([1; 32], [2; 32]);
    let former = signing(&world, &[old])?;
    for tenant in [ada, bo] {
        former.add(tenant.id, hourly(&tenant)).await?;
    }
    let unsigned = ada.add(hourly(&ada)).await?;
    let rotating = signing(&world, &[new, old])?;
    let renew = async || {
        let (mut last, mut renewed) = (None, 0);
        loop {
            last = rotating.renew_signatures(last, &mut renewed).await?;
            if last.is_none() {
                return anyhow::Ok(renewed);
            }
        }
    };

    assert_eq!(renew().await?, 2);
    assert_eq!(renew().await?, 0);
    assert_eq!(ada.get(unsigned.id).await?.signature, None);
    Ok(())
}

#[tokio::test]
async fn a_job_of_a_person_who_gets_another_conversation_stays_signed() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let jobs = signing(&world, &[[1; 32]])?;
    let reminder = |content: &str| {
        let what = Reminder {
            content: content.to_owned(),
            session: "agent:main:dm:telegram:7".to_owned(),
            auto_continue: false,
            locale: String::new(),
            target: None,
            renewals: 0,
            author: None,
            outside: false,
        };
        NewJob {
            kind: JobKind::Reminder,
            owner: Some("telegram:7".to_owned()),
            payload: serde_json::to_value(what).unwrap_or_default(),
            id: JobId::generate(),
            ..ada.job(json!({"every_s": 3600}))
        }
    };
    let signed = jobs.add(ada.id, reminder("tea")).await?.into_job();
    let unsigned = ada.add(reminder("coffee")).await?;
    let pair = |former: &str, latter: &str| vec![(former.to_owned(), latter.to_owned())];

    let keys = pair("agent:main:dm:telegram:7", "agent:main:dm:telegram:=ada");
    jobs.follow_people(ada.id, &keys, &pair("telegram:7", "person:ada")).await?;

    let moved = ada.get(signed.id).await?;
    assert_eq!(moved.owner.as_deref(), Some("person:ada"));
    assert!(moved.signature.is_some() && moved.signature != signed.signature);
    assert_eq!(ada.get(unsigned.id).await?.signature, None);
    let again = moved.signature.clone();
    jobs.follow_people(ada.id, &keys, &pair("person:ada", "person:bo")).await?;
    assert_ne!(ada.get(signed.id).await?.signature, again, "it was valid");
    Ok(())
}
