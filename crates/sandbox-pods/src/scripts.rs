//! Scripts for a POSIX shell that run in a pod, besides the command itself.
//!
//! All are constant. The command reaches its pod over standard input: the API server writes the
//! arguments of `exec` to its audit log, where neither scripts nor the secrets of skills belong.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use holdfast_sandbox::{Command, CommandTerms, MOUNT, Signal};

/// Name of the container's first process, by which a script recognises its pod.
pub(crate) const NAME: &str = "holdfast-sandbox";

/// First process of the container: it waits, and reaps. Its shell would report each killed process.
pub(crate) const WAIT: &str = "exec 2>/dev/null; while :; do sleep 86400 & wait $!; done";

/// Runs the script on the first line of standard input; the command reads the rest. What is left of
/// the command ends with it: as long as its output is open, the cluster does not tell the exit code.
pub(crate) const RUN: &str = "trap : TERM INT HUP USR1 USR2
IFS= read -r line || exit 125
script=$(printf %s \"$line\" | base64 -d) || exit 125
eval \"$script\"
code=$?
[ -d /proc/self ] || exit $code
case \"$(tr '\\0' ' ' </proc/1/cmdline)\" in *holdfast-sandbox*) kill -9 -1 2>/dev/null ;; esac
exit $code";

/// Ends all processes but the first, and empties the writable folders but the workspace. In another
/// process namespace than the pod's own it ends nothing.
macro_rules! clean {
    () => {
        "export LC_ALL=C
[ -d /proc/self ] || exit 125
case \"$(tr '\\0' ' ' </proc/1/cmdline)\" in *holdfast-sandbox*) ;; *) exit 125 ;; esac
kill -9 -1 2>/dev/null
empty() {
  [ -d \"$1\" ] && cd \"$1\" || return 0
  chmod -R u+rwX . 2>/dev/null
  rm -rf -- ..?* .[!.]* * 2>/dev/null
  [ -z \"$(ls -A .)\" ] || exit 125
}
empty /tmp
[ ! -w /dev/shm ] || empty /dev/shm
"
    };
}

/// Replaces the workspace by the tar stream on standard input.
pub(crate) const UNPACK: &str =
    concat!(clean!(), "empty /workspace\ncd /workspace && exec tar -xf -");

/// Writes the workspace to standard output as a tar stream.
pub(crate) const PACK: &str =
    concat!(clean!(), "cd /workspace && { chmod -R u+rwX . 2>/dev/null; exec tar -cf - .; }");

/// Script that sends a signal to all processes of the pod but the first.
pub(crate) const fn signal(signal: Signal) -> &'static str {
    macro_rules! kill {
        ($name:literal) => {
            concat!(
                "[ -d /proc/self ] || exit 125
case \"$(tr '\\0' ' ' </proc/1/cmdline)\" in *holdfast-sandbox*) kill -",
                $name,
                " -1 ;; *) exit 125 ;; esac"
            )
        };
    }
    match signal {
        Signal::Interrupt => kill!("INT"),
        Signal::Terminate => kill!("TERM"),
        Signal::Kill => kill!("KILL"),
        Signal::HangUp => kill!("HUP"),
        Signal::User1 => kill!("USR1"),
        Signal::User2 => kill!("USR2"),
    }
}

/// First line for [`RUN`], with the line break: sets the limits, and becomes the command's shell,
/// bash if the image has it.
pub(crate) fn first_line(command: &Command, terms: &CommandTerms) -> Vec<u8> {
    let limits = &terms.limits;
    let workdir = command.workdir.path_in_sandbox();
    let mut script = format!(
        "(cd {} || exit 125\nmkdir -p /tmp/home\n\
         ulimit -c 0; ulimit -S -t {}; ulimit -f {}; ulimit -n {}; ulimit -d {}\n\
         exec env -i",
        quoted(&workdir.to_string_lossy()),
        limits.cpu.as_secs(),
        limits.file_size / 512,
        limits.open_files,
        limits.memory / 1024,
    );
    let variables = [
        ("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"),
        ("HOME", "/tmp/home"),
        ("USER", "agent"),
        ("LOGNAME", "agent"),
        ("LANG", "C.UTF-8"),
        ("TMPDIR", "/tmp"),
    ];
    let own = command.env.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    for (name, value) in variables.into_iter().chain(own) {
        script.push(' ');
        script.push_str(&quoted(&format!("{name}={value}")));
    }
    script.push_str(" \"$(command -v bash || echo /bin/sh)\" -c ");
    script.push_str(&quoted(&command.script));
    script.push(')');
    let mut line = STANDARD.encode(script).into_bytes();
    line.push(b'\n');
    line
}

/// A word that a shell takes as it is.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

const _: () = assert!(MOUNT.len() == "/workspace".len(), "the scripts name the workspace");

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, io::Write as _, process::Stdio};

    use holdfast_sandbox::Limits;

    use super::*;

    /// Runs a command's first line here, in a folder that exists.
    fn run(command: &Command) -> String {
        let terms =
            CommandTerms { limits: Limits::default(), timeout: std::time::Duration::from_secs(9) };
        let line = first_line(command, &terms);
        let script = STANDARD.decode(&line[..line.len() - 1]).unwrap();
        let script = String::from_utf8(script).unwrap().replacen("(cd '/workspace'", "(cd /", 1);
        let mut line = STANDARD.encode(script.replace("mkdir -p /tmp/home", "")).into_bytes();
        line.extend_from_slice(b"\nrest of the input\n");
        let mut child = std::process::Command::new("/bin/sh")
            .args(["-c", RUN])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(&line).unwrap();
        String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
    }

    #[test]
    fn a_script_and_its_variables_arrive_as_they_are_and_the_input_is_left_to_them() {
        let text = "a'b \"c\" $(touch x) `d`\n\\ ' ; exit 1 #\n\n";
        let mut command = Command::new("printf %s \"$A|\"; cat; echo 'it'\\''s'\n\n", "/w");
        command.env = BTreeMap::from([("A".to_owned(), text.to_owned())]);

        assert_eq!(run(&command), format!("{text}|rest of the input\nit's\n"));
    }

    #[test]
    fn nothing_but_what_is_given_is_in_the_environment() {
        let out = run(&Command::new("env | sort | cut -d= -f1 | tr '\\n' ' '", "/w"));
        assert_eq!(out, "HOME LANG LOGNAME PATH PWD SHLVL TMPDIR USER _ ");
    }

    #[test]
    fn outside_a_pod_no_process_is_ended_and_no_file_removed() {
        let harmless =
            "kill() { echo killed; }; rm() { echo removed; }; chmod() { echo changed; }\n";
        for script in [signal(Signal::Kill), UNPACK, PACK] {
            let output = std::process::Command::new("/bin/sh")
                .args(["-c", &format!("{harmless}{script}")])
                .output()
                .unwrap();
            assert_eq!(output.status.code(), Some(125));
            assert_eq!(String::from_utf8_lossy(&output.stdout), "");
        }
    }
}
