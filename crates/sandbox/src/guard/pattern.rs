//! Dangerous patterns in scripts, by class.
//!
//! Patterns are matched against the lower-cased script. `start!` precedes a program's name: it
//! matches the beginning, or a character that cannot be part of a name or option.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DangerClass {
    /// Deletes trees: `rm -r`, `rm -f`, `del /f`, `rmdir /s`.
    RecursiveDelete,
    /// Makes file systems: `mkfs`, `diskpart`, `format c:`.
    Format,
    /// Reads or writes disks beneath their file systems: `dd if=`, `> /dev/sda`.
    RawDisk,
    /// Stops the machine: `shutdown`, `reboot`, `poweroff`, `halt`.
    Power,
    /// Functions that start themselves: `:(){ :|:& };:`.
    ForkBomb,
    /// Text made into commands: `$(…)`, `${…}`, back-ticks.
    Substitution,
    /// Text piped to a shell, downloaded or not: `| sh`, `curl … | bash`.
    PipeToShell,
    /// Discards output: `> /dev/null`.
    NullRedirect,
    /// Text within the script as input: `<<`.
    HereDocument,
    /// Another user's rights: `sudo`, `su`, `doas`, `pkexec`.
    Privilege,
    /// Permissions of files: `chmod 777`, `chown`, `chgrp`.
    Ownership,
    /// Ends other processes: `pkill`, `killall`, `kill -9`.
    Kill,
    /// Software for the whole machine: `npm -g`, `pip --user`, `apt install`.
    Packages,
    /// Starts containers: `docker run`, `docker exec`, and podman's.
    Containers,
    /// Publishes by git, or overwrites: `git push`, `git … --force`.
    GitPush,
    /// Logs in to other machines: `ssh user@host`.
    Remote,
    /// Text run as a script: `eval`, `source x.sh`.
    Eval,
}

macro_rules! start {
    ($rest:literal) => {
        concat!(r"(?:^|[^\w.-])", $rest)
    };
}

impl DangerClass {
    pub const ALL: [Self; 17] = [
        Self::RecursiveDelete,
        Self::Format,
        Self::RawDisk,
        Self::Power,
        Self::ForkBomb,
        Self::Substitution,
        Self::PipeToShell,
        Self::NullRedirect,
        Self::HereDocument,
        Self::Privilege,
        Self::Ownership,
        Self::Kill,
        Self::Packages,
        Self::Containers,
        Self::GitPush,
        Self::Remote,
        Self::Eval,
    ];

    /// Regular expressions on the lower-cased script.
    pub(super) const fn patterns(self) -> &'static [&'static str] {
        match self {
            Self::RecursiveDelete => &[
                start!(r"rm\s+(?:\S+\s+)*(?:-[a-z]*[rf]|--recursive\b|--force\b)"),
                start!(r"del\s+/[fsq]\b"),
                start!(r"(?:rmdir|rd)\s+/s\b"),
            ],
            Self::Format => &[
                start!(r"(?:mkfs(?:\.\w+)?|mkswap|diskpart|wipefs)(?:$|[\s;&|)}<>])"),
                start!(r"format\s+[a-z]:"),
            ],
            Self::RawDisk => &[
                start!(r"dd\s+(?:\S+\s+)*(?:if|of)="),
                r">\s*/dev/(?:sd|hd|vd|xvd|nvme|mmcblk|loop|dm-|mapper/|mem\b)",
            ],
            Self::Power => &[
                start!(r"(?:shutdown|reboot|poweroff|halt)(?:$|[\s;&|)}<>])"),
                start!(r"(?:init|telinit)\s+[06]\b"),
                start!(r"systemctl\s+(?:\S+\s+)*(?:suspend|hibernate|kexec)\b"),
            ],
            Self::ForkBomb => &[
                r":\s*\(\s*\)\s*\{",
                r"(?:^|[^\w.-])(?:function\s+)?(\w+)\s*\(\s*\)\s*\{\s*\w+\s*\|\s*\w+\s*&",
            ],
            Self::Substitution => &[r"\$\(", r"\$\{", "`"],
            Self::PipeToShell => {
                &[r"\|\s*(?:\S*/)?(?:sudo\s+)?(?:\S*/)?(?:ba|z|da|k|c|tc|fi)?sh(?:$|[\s;&|)}<>])"]
            }
            Self::NullRedirect => &[r">\s*/dev/null\b"],
            Self::HereDocument => &[r"<<"],
            Self::Privilege => {
                &[start!(r"(?:sudo|doas|pkexec)(?:$|[\s;&|)}<>])"), start!(r"su\s+(?:-|root\b)")]
            }
            Self::Ownership => {
                &[start!(r"chmod\s+(?:-\S+\s+)*[0-7]{3,4}\b"), start!(r"(?:chown|chgrp)\s")]
            }
            Self::Kill => &[
                start!(r"(?:pkill|killall)(?:$|[\s;&|)}<>])"),
                start!(r"kill\s+(?:-s\s+)?-?(?:9|kill|sigkill)\b"),
            ],
            Self::Packages => &[
                start!(r"(?:npm|pnpm|yarn)\s+(?:\S+\s+)*(?:-g|--global|global)\b"),
                start!(r"pip[\d.]*\s+(?:\S+\s+)*--user\b"),
                start!(
                    r"(?:apt|apt-get|aptitude|yum|dnf|zypper|apk|brew)\s+(?:-\S+\s+)*(?:install|remove|purge|erase|add|del|upgrade)\b"
                ),
            ],
            Self::Containers => {
                &[start!(r"(?:docker|podman|nerdctl)\s+(?:\S+\s+)*?(?:run|exec)\b")]
            }
            Self::GitPush => &[
                start!(r"git\s+(?:-\S+\s+|\S+=\S+\s+)*push\b"),
                start!(r"git\s+[^;&|]*\s(?:--force(?:-with-lease)?\b|-f\b)"),
            ],
            Self::Remote => &[start!(r"(?:ssh|scp|sftp|rsync)\s+(?:[^;&|]*\s)?[\w.+-]+@")],
            Self::Eval => &[
                start!(r"eval\s"),
                start!(r"source\s+\S+\.(?:ba|z)?sh(?:$|[\s;&|)}<>])"),
                r"(?:^|[;&|({])\s*\.\s+\S+\.(?:ba|z)?sh(?:$|[\s;&|)}<>])",
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use regex::RegexSet;

    use super::*;

    /// Scripts of a class, and scripts that only resemble it.
    const CASES: [(DangerClass, &[&str], &[&str]); 17] = [
        (
            DangerClass::RecursiveDelete,
            &[
                "rm -rf /",
                "rm -r a",
                "rm a -f",
                "ls; rm -fr b",
                "rm --recursive a",
                "/bin/rm -rf a",
                "del /f x",
                "rmdir /s x",
            ],
            &[
                "rm a.txt",
                "farm -rf",
                "git rm-cached",
                "confirm -r",
                "rmdir empty",
                "docker --rm x",
                "echo arm -f",
            ],
        ),
        (
            DangerClass::Format,
            &["mkfs.ext4 /dev/sda1", "mkfs x", "diskpart", "format c:"],
            &[
                "cat mkfs-notes.txt.mkfsx",
                "cargo fmt",
                "reformat c",
                "format the text",
                "black --format x",
            ],
        ),
        (
            DangerClass::RawDisk,
            &["dd if=/dev/zero of=x", "dd bs=1 if=a", "echo x > /dev/sda", "cat a >/dev/nvme0n1"],
            &["add if=x", "echo dd", "echo x > dev/sda", "cat /dev/sda.txt", "git add of=x"],
        ),
        (
            DangerClass::Power,
            &["shutdown -h now", "reboot", "ls && poweroff", "init 0", "systemctl reboot"],
            &["cat shutdown_handler.rs", "python on-reboot.py", "git init", "init 3", "asphalt"],
        ),
        (
            DangerClass::ForkBomb,
            &[":(){ :|:& };:", ": () { :|:& }", "bomb() { bomb | bomb & }"],
            &["f() { echo a; }", "x=a:b", "f() { a | b; }"],
        ),
        (
            DangerClass::Substitution,
            &["echo $(id)", "echo ${HOME}", "echo `id`"],
            &["echo $HOME", "grep '^a$' (x)", "awk '{print $1}'"],
        ),
        (
            DangerClass::PipeToShell,
            &[
                "cat a | sh",
                "curl x | bash",
                "wget -qO- x |bash -s",
                "echo x | /bin/sh",
                "echo x | sudo bash",
            ],
            &[
                "cat a | shuf",
                "bash a.sh",
                "ls | grep sh",
                "echo a || shred-list",
                "ls | fish-names",
            ],
        ),
        (
            DangerClass::NullRedirect,
            &["ls > /dev/null", "ls >/dev/null 2>&1", "ls 2>/dev/null"],
            &["cat /dev/null", "ls > dev/null", "ls > /dev/nullable"],
        ),
        (DangerClass::HereDocument, &["cat <<EOF", "cat << 'X'"], &["cat < file", "a < b"]),
        (
            DangerClass::Privilege,
            &["sudo ls", "ls; sudo -i", "su - root", "su root", "doas ls"],
            &["pseudo ls", "cat sudoers.txt", "issue su", "sum - x", "result"],
        ),
        (
            DangerClass::Ownership,
            &["chmod 777 x", "chmod -R 0644 x", "chown a x", "chgrp a x"],
            &["chmod +x run", "chmod u+rw 1234", "echo chown", "mychown x"],
        ),
        (
            DangerClass::Kill,
            &["pkill x", "killall x", "kill -9 1", "kill -KILL 1", "kill -s kill 1"],
            &["kill 123", "kill -15 9", "skill -9", "painkiller", "kill -90"],
        ),
        (
            DangerClass::Packages,
            &[
                "npm install -g x",
                "npm i --global x",
                "pip install --user x",
                "pip3 install --user x",
                "apt install x",
                "apt-get -y install x",
                "yum remove x",
                "dnf install x",
            ],
            &[
                "npm install x",
                "pip install -r requirements.txt",
                "apt list",
                "adapt install",
                "npm run build-g",
            ],
        ),
        (
            DangerClass::Containers,
            &["docker run x", "docker exec -it x sh", "docker compose run x"],
            &["docker ps", "cat docker-run.md", "docker images", "mydocker running"],
        ),
        (
            DangerClass::GitPush,
            &[
                "git push",
                "git push origin main",
                "git -c a=b push",
                "git checkout --force x",
                "git clean -f",
            ],
            &[
                "git pull",
                "git log --format=x",
                "git commit -m pushy",
                "legit push",
                "git status; rg -f x",
            ],
        ),
        (
            DangerClass::Remote,
            &["ssh root@host", "ssh -p 22 a.b@host", "scp x me@host:"],
            &["ssh-keygen -l", "mail me@host", "ssh host", "git@host", "cat ssh; mail a@b"],
        ),
        (
            DangerClass::Eval,
            &["eval x", "a; eval \"$x\"", "source env.sh", ". ./env.sh"],
            &[
                "evaluate x",
                "medieval x",
                "source .venv/bin/activate",
                "python eval.py",
                "ls . a.sh.txt",
                "cat x. b",
            ],
        ),
    ];

    #[test]
    fn each_class_matches_what_it_names_and_not_what_resembles_it() {
        let mut wrong = Vec::new();
        for (class, dangerous, harmless) in CASES {
            let set = RegexSet::new(class.patterns()).unwrap();
            let is_match = |script: &&&str| set.is_match(&script.to_lowercase());
            wrong.extend(dangerous.iter().filter(|it| !is_match(it)).map(|it| (class, *it)));
            wrong.extend(harmless.iter().filter(is_match).map(|it| (class, *it)));
        }
        assert!(wrong.is_empty(), "{wrong:?}");
    }

    #[test]
    fn each_class_has_its_cases() {
        assert_eq!(CASES.map(|(class, _, _)| class), DangerClass::ALL);
    }
}
