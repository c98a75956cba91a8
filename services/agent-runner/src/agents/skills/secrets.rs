//! Secrets of an agent's skills: set for its commands, and removed from tool results.
//!
//! Only usable skills have secrets, and only those that they name. A variable that the model itself
//! sets for a command is not changed.
//!
//! **What can go wrong.** A command may write a secret in another form (base64, letter by letter),
//! or into a file that is read after the secret has changed. That is not detected; docs/skills.md
//! says so.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_directory::SkillVariableValue;
use holdfast_skills::SkillSet;
use secrecy::{ExposeSecret as _, SecretString};

/// Minimum length of a secret that is looked for in outgoing requests, in bytes: a shorter one may
/// stand in them by chance.
const MIN_SEARCHED_BYTES: usize = 8;

/// Minimum length of a line that is removed by itself, in bytes, for secrets of several lines.
const MIN_LINE_BYTES: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct Secrets {
    variables: BTreeMap<String, SecretString>,
    /// Texts to remove and the names of their variables, longest first.
    forms: Vec<(SecretString, String)>,
}

/// Names of the variables that are set, by skill, for
/// [`Surroundings`](holdfast_skills::Surroundings).
pub(crate) fn variable_names(open: &[SkillVariableValue]) -> BTreeMap<String, BTreeSet<String>> {
    let mut names: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for variable in open {
        names.entry(variable.skill.clone()).or_default().insert(variable.name.clone());
    }
    names
}

impl Secrets {
    /// Selects the secrets that the skills of a shelf may use. If two skills have a variable of the
    /// same name, the first skill by name wins.
    pub(crate) fn of(skill_set: &SkillSet, open: Vec<SkillVariableValue>) -> Self {
        let mut secrets = Self::default();
        for SkillVariableValue { skill, name, value } in open {
            let is_its = skill_set.find(&skill).is_some_and(|skill| {
                skill.is_usable() && skill.manifest.variables().any(|variable| variable == name)
            });
            if is_its {
                secrets.add_forms(&name, &value);
                secrets.variables.entry(name).or_insert(value);
            }
        }
        secrets.forms.sort_by_key(|(form, _)| std::cmp::Reverse(form.expose_secret().len()));
        secrets
    }

    fn add_forms(&mut self, name: &str, value: &SecretString) {
        let value = value.expose_secret();
        let mut forms: BTreeSet<String> = [value.to_owned(), value.trim().to_owned()].into();
        // JSON form, without the quotes around it.
        let json = serde_json::Value::from(value).to_string();
        forms.insert(json[1..json.len() - 1].to_owned());
        let lines = value.lines().map(str::trim).filter(|line| line.len() >= MIN_LINE_BYTES);
        forms.extend(lines.map(str::to_owned));
        forms.retain(|form| !form.is_empty());
        self.forms.extend(forms.into_iter().map(|form| (form.into(), name.to_owned())));
    }

    /// Sets the variables that a command does not set itself.
    pub(crate) fn add_to_env(&self, env: &mut BTreeMap<String, String>) {
        for (name, value) in &self.variables {
            env.entry(name.clone()).or_insert_with(|| value.expose_secret().to_owned());
        }
    }

    /// Name of a secret that a text contains.
    pub(crate) fn find_in(&self, text: &str) -> Option<&str> {
        let is_in = |(form, _): &&(SecretString, String)| {
            let form = form.expose_secret();
            form.len() >= MIN_SEARCHED_BYTES && text.contains(form)
        };
        self.forms.iter().find(is_in).map(|(_, name)| name.as_str())
    }

    /// Replaces secrets in a text by their names.
    pub(crate) fn redact(&self, text: String) -> String {
        let mut text = text;
        for (form, name) in &self.forms {
            if text.contains(form.expose_secret()) {
                text = text.replace(form.expose_secret(), &format!("[secret {name}]"));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use holdfast_skills::{Scope, SkillEnvironment, SkillFile};

    use super::*;

    fn open(skill: &str, name: &str, value: &str) -> SkillVariableValue {
        SkillVariableValue { skill: skill.into(), name: name.into(), value: value.into() }
    }

    fn secrets(needs: &[(&str, &str)], open: Vec<SkillVariableValue>) -> Secrets {
        let files = needs.iter().map(|(name, needs)| SkillFile {
            scope: Scope::Workspace,
            folder: (*name).to_owned(),
            text: format!(
                "---\nname: {name}\ndescription: d\nmetadata: {{ openclaw: {{ {needs} }} }}\n---\n"
            )
            .into_bytes(),
        });
        let here = SkillEnvironment { env: variable_names(&open), ..SkillEnvironment::default() };
        Secrets::of(&SkillSet::from_files(files, &here), open)
    }

    fn given(secrets: &Secrets) -> Vec<(String, String)> {
        let mut env = BTreeMap::from([("MINE".to_owned(), "own".to_owned())]);
        secrets.add_to_env(&mut env);
        env.into_iter().collect()
    }

    #[test]
    fn only_what_a_skill_that_can_be_used_names_is_given() {
        let needs = [
            ("plants", "requires: { env: [KEY, MINE] }, primaryEnv: FIRST"),
            ("lacking", "requires: { env: [OTHER, UNSET] }"),
            ("plain", "emoji: x"),
        ];
        let open = vec![
            open("lacking", "OTHER", "s3cret-other"),
            open("plain", "PLAIN", "s3cret-plain"),
            open("plants", "FIRST", "s3cret-first"),
            open("plants", "KEY", "s3cret-key"),
            open("plants", "MINE", "s3cret-mine"),
            open("plants", "NEVER", "s3cret-never"),
        ];
        let secrets = secrets(&needs, open);

        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            given(&secrets),
            [pair("FIRST", "s3cret-first"), pair("KEY", "s3cret-key"), pair("MINE", "own")]
        );
    }

    #[test]
    fn a_value_is_taken_out_of_a_text_in_each_of_its_forms() {
        let key = "-----BEGIN-----\nMIIEvQIBADANBgkqhkiG\n-----END-----\n";
        let open = vec![
            open("a", "KEY", "a \"b\" c"),
            open("a", "LONG", "a \"b\" cd"),
            open("a", "PEM", key),
        ];
        let secrets = secrets(&[("a", "requires: { env: [KEY, LONG, PEM] }")], open);
        let without = |text: &str| secrets.redact(text.to_owned());

        assert_eq!(without("x a \"b\" cd y a \"b\" c"), "x [secret LONG] y [secret KEY]");
        assert_eq!(without(r#"{"key":"a \"b\" c"}"#), r#"{"key":"[secret KEY]"}"#);
        assert_eq!(without("> MIIEvQIBADANBgkqhkiG"), "> [secret PEM]");
        assert_eq!(without("nothing"), "nothing");
        assert_eq!(secrets.find_in(r#"{"url":"x?a \"b\" cd"}"#), Some("LONG"));
        assert_eq!(secrets.find_in("a \"b\" c"), None, "it is too short to mean anything");
        assert!(!format!("{secrets:?}").contains("MIIE"));
    }
}
