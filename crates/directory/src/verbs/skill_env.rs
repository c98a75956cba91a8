//! Operations on environment variables of skills. Values can be set, and only runners read them.

use holdfast_types::TenantId;
use secrecy::{ExposeSecret as _, SecretString};

use super::check_limit;
use crate::{
    Actor, Directory, Error, Purpose, SecretUse, SkillVariable, SkillVariableValue,
    skill_env::{check, skill_key},
    store,
};

/// Maximum number of variables of a tenant.
const MAX_VARIABLES: i64 = 500;

/// Environment variables of skills.
#[derive(Debug, Clone, Copy)]
pub struct SkillEnv<'d>(&'d Directory);

impl Directory {
    #[must_use]
    pub const fn skill_env(&self) -> SkillEnv<'_> {
        SkillEnv(self)
    }
}

impl SkillEnv<'_> {
    /// Returns the names of the variables that are set, by skill and name, without their values.
    pub async fn list(self, tenant: TenantId) -> Result<Vec<SkillVariable>, Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let variables = store::skill_env::all(&mut tx).await?;
        tx.commit().await?;
        Ok(variables)
    }

    /// Stores a variable of a skill, which may be installed later. An existing value is replaced.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a malformed value, [`Error::TooMany`] at the limit.
    pub async fn put(
        self,
        tenant: TenantId,
        actor: Actor,
        (skill, name): (&str, &str),
        value: &SecretString,
    ) -> Result<(), Error> {
        let skill = skill_key(skill)?;
        check(name, value)?;
        let mut tx = self.0.begin_change(tenant).await?;
        // A replaced variable is counted too, so at the limit a replacement is refused.
        check_limit("variables of skills", store::skill_env::count(&mut tx).await?, MAX_VARIABLES)?;
        let data_key = self.0.data_key(&mut tx).await?;
        let purpose = Purpose::SkillEnv { skill: &skill, name };
        let sealed = data_key.seal(purpose, value.expose_secret().as_bytes()).await?;
        store::skill_env::put(&mut tx, (&skill, name), &sealed).await?;
        store::audit::record(&mut tx, actor, "skill_env.put", format!("{skill}/{name}")).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Deletes a variable of a skill.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the variable is not set.
    pub async fn delete(
        self,
        tenant: TenantId,
        actor: Actor,
        (skill, name): (&str, &str),
    ) -> Result<(), Error> {
        let skill = skill_key(skill)?;
        let subject: String = format!("{skill}/{name}").chars().take(200).collect();
        let mut tx = self.0.begin_change(tenant).await?;
        if !store::skill_env::delete(&mut tx, &skill, name).await? {
            return Err(Error::not_found("variable", subject));
        }
        store::audit::record(&mut tx, actor, "skill_env.delete", subject).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Returns the variables of a tenant's skills with their values.
    ///
    /// # Errors
    ///
    /// [`Error::Unsealable`] if a value cannot be opened.
    pub async fn open(self, tenant: TenantId) -> Result<Vec<SkillVariableValue>, Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let sealed = store::skill_env::sealed(&mut tx).await?;
        if sealed.is_empty() {
            tx.commit().await?;
            return Ok(Vec::new());
        }
        let data_key = self.0.data_key(&mut tx).await?;
        tx.commit().await?;
        let mut variables = Vec::with_capacity(sealed.len());
        for row in sealed {
            let purpose = Purpose::SkillEnv { skill: &row.skill, name: &row.name };
            let value = data_key.open_text(purpose, &row.value, SecretUse::Skills).await?;
            variables.push(SkillVariableValue { skill: row.skill, name: row.name, value });
        }
        Ok(variables)
    }
}
