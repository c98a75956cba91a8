//! Slices of tenants: control groups (cgroup v2) that bound all commands of a tenant together.
//!
//! ```text
//! <this process' group>/holdfast-runner      this process
//! <this process' group>/tenants              commands of all tenants
//! <this process' group>/tenants/tenant-<id>  commands of a tenant; removed when they have ended
//! ```
//!
//! A group with processes of its own cannot have limited groups below it, so this process moves to
//! one of its own. Slices need a group that belongs to this process alone: a container, or a systemd
//! unit with `Delegate=yes`. Elsewhere only the limits of each command apply.

use std::{
    collections::HashMap,
    fmt, fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use holdfast_types::TenantId;
use rustix::process::{Pid, getpid};
use serde::{Deserialize, Serialize};
use tracing::{debug, info, warn};

use crate::Error;

const MOUNT: &str = "/sys/fs/cgroup";

/// Disks of the machine: a folder for each.
const DISKS: &str = "/sys/block";

const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];

/// Controller that is used where it is there: not every unit delegates it.
const IO_CONTROLLER: &str = "io";

/// Group of this process, below the one that it was started in.
const OWN_GROUP: &str = "holdfast-runner";

/// Group of all tenants' slices, beside it.
const TENANTS_GROUP: &str = "tenants";

/// Limits of all commands of a tenant together, where the system has cgroup v2.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TenantLimits {
    /// Memory in bytes, page cache included.
    pub memory: u64,
    /// Processes and threads.
    pub processes: u32,
    /// Share of the processors when they are busy, 1 to 10,000; each tenant's is the same.
    pub cpu_weight: u32,
    /// Share of the disks when they are busy, 1 to 10,000; each tenant's is the same. It needs the
    /// controller `io`, and a kernel or an I/O scheduler that weighs.
    pub io_weight: u32,
    /// Bytes that are read, and as many that are written, in a second on each disk; 0 is no limit. It
    /// needs the controller `io`.
    pub io_bytes: u64,
    /// Reads, and as many writes, in a second on each disk; 0 is no limit. It needs the controller `io`.
    pub io_operations: u64,
    /// Memory in bytes of all commands of all tenants; 0 is three quarters of the memory that this
    /// process' group or the machine has.
    pub all_memory: u64,
}

impl Default for TenantLimits {
    fn default() -> Self {
        Self {
            memory: 4 << 30,
            processes: 1024,
            cpu_weight: 100,
            io_weight: 100,
            io_bytes: 0,
            io_operations: 0,
            all_memory: 0,
        }
    }
}

/// Reason why there are no slices here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoSlices {
    #[error("cgroup v2 is not mounted")]
    NotMounted,
    #[error("cgroup v2 lacks the controller {0}")]
    NoController(&'static str),
    #[error("cgroup v2 is not writable")]
    NotWritable,
    #[error("the cgroup has other processes")]
    Shared,
    #[error("slices are turned off")]
    Off,
}

/// Slices of this process.
#[derive(Debug)]
pub(crate) struct TenantSlices {
    /// Group of all slices.
    tenants: PathBuf,
    limits: TenantLimits,
    /// Disks whose I/O can be limited, as `major:minor`; `None` without the controller.
    disks: Option<Vec<String>>,
    /// Number of commands; 0 for a slice that could not be removed yet.
    commands: Mutex<HashMap<TenantId, usize>>,
}

/// One command's part in its tenant's slice.
#[derive(Debug)]
pub(crate) struct SliceMember {
    slices: Arc<TenantSlices>,
    tenant: TenantId,
}

/// Kind of the limits that commands have here.
#[derive(Debug, Clone)]
pub(crate) enum LimitScope {
    Tenants(Arc<TenantSlices>),
    Processes(NoSlices),
}

impl LimitScope {
    /// Moves this process to a group of its own on the first call, if the system permits it.
    pub(crate) fn of_this_process(limits: &TenantLimits) -> Self {
        // All sandboxes of a process share its slices.
        static SLICES: OnceLock<LimitScope> = OnceLock::new();
        let open = || {
            let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
            let system = (Path::new(MOUNT), Path::new(DISKS));
            match TenantSlices::open(system, &own, limits.clone()) {
                Ok(slices) => {
                    info!("commands are limited by tenant");
                    slices.report_missing_io();
                    Self::Tenants(Arc::new(slices))
                }
                Err(reason) => {
                    warn!(%reason, "commands are limited one by one, not by tenant");
                    Self::Processes(reason)
                }
            }
        };
        SLICES.get_or_init(open).clone()
    }
}

impl fmt::Display for LimitScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tenants(_) => f.write_str("limits: cgroup"),
            Self::Processes(reason) => write!(f, "limits: per process only: {reason}"),
        }
    }
}

impl TenantSlices {
    /// Opens the group that `own`, the content of `/proc/self/cgroup`, names.
    pub(crate) fn open(
        (mount, disks): (&Path, &Path),
        own: &str,
        limits: TenantLimits,
    ) -> Result<Self, NoSlices> {
        let path = own.lines().find_map(|line| line.strip_prefix("0::/"));
        let group = mount.join(path.ok_or(NoSlices::NotMounted)?);
        let controllers = fs::read_to_string(group.join("cgroup.controllers"));
        let controllers = controllers.map_err(|_| NoSlices::NotMounted)?;
        let has = |needed| controllers.split_whitespace().any(|there| there == needed);
        for needed in CONTROLLERS {
            if !has(needed) {
                return Err(NoSlices::NoController(needed));
            }
        }
        let own_group = group.join(OWN_GROUP);
        make_group(&own_group).map_err(|_| NoSlices::NotWritable)?;
        let pid = getpid().as_raw_nonzero().to_string();
        let join = fs::write(own_group.join("cgroup.procs"), pid);
        join.map_err(|_| NoSlices::NotWritable)?;
        let io = has(IO_CONTROLLER).then_some(IO_CONTROLLER);
        let enable: Vec<_> =
            CONTROLLERS.into_iter().chain(io).map(|controller| format!("+{controller}")).collect();
        let enable = enable.join(" ");
        fs::write(group.join("cgroup.subtree_control"), &enable).map_err(|error| {
            match error.kind() {
                ErrorKind::ResourceBusy => NoSlices::Shared,
                _ => NoSlices::NotWritable,
            }
        })?;
        let tenants = group.join(TENANTS_GROUP);
        make_group(&tenants)
            .and_then(|()| fs::write(tenants.join("cgroup.subtree_control"), enable))
            .and_then(|()| match all_memory(&group, &limits) {
                Some(memory) => limit_memory(&tenants, memory),
                None => Ok(()),
            })
            .map_err(|_| NoSlices::NotWritable)?;
        let disks = io.map(|_| limited_disks(disks, &tenants));
        Ok(Self { tenants, limits, disks, commands: Mutex::default() })
    }

    /// Logs limits of disk I/O that cannot be enforced here.
    fn report_missing_io(&self) {
        let has_limits = self.limits.io_bytes > 0 || self.limits.io_operations > 0;
        match &self.disks {
            None if has_limits => {
                warn!("cgroup v2 lacks the controller io: disk I/O of commands is not limited");
            }
            None => info!("cgroup v2 lacks the controller io: tenants have no shares of the disks"),
            Some(disks) if disks.is_empty() && has_limits => {
                warn!("no disk takes a limit: disk I/O of commands is not limited");
            }
            Some(_) => {}
        }
    }

    /// Limits the disk I/O of a group where the system can.
    fn limit_io(&self, slice: &Path) -> std::io::Result<()> {
        let Some(disks) = &self.disks else { return Ok(()) };
        let TenantLimits { io_weight, io_bytes, io_operations, .. } = &self.limits;
        let weight = slice.join("io.weight");
        if weight.exists() {
            fs::write(weight, format!("default {io_weight}"))?;
        }
        let limit = |most: u64| if most == 0 { "max".to_owned() } else { most.to_string() };
        let (bytes, operations) = (limit(*io_bytes), limit(*io_operations));
        if *io_bytes == 0 && *io_operations == 0 {
            return Ok(());
        }
        for disk in disks {
            let limits =
                format!("{disk} rbps={bytes} wbps={bytes} riops={operations} wiops={operations}");
            if let Err(error) = fs::write(slice.join("io.max"), limits) {
                // It may have been taken out of the machine.
                debug!(%error, disk, "the I/O of a disk is not limited");
            }
        }
        Ok(())
    }

    /// Moves processes of a command to its tenant's slice. Processes that they start later are born
    /// there.
    pub(crate) fn join(
        self: &Arc<Self>,
        tenant: TenantId,
        processes: impl IntoIterator<Item = Pid>,
    ) -> Result<SliceMember, Error> {
        let mut commands = self.lock();
        self.remove_unused(&mut commands);
        let slice = self.slice(tenant);
        let failed = Error::failed("limit a tenant's commands");
        let joined = make_group(&slice)
            .and_then(|()| {
                let TenantLimits { memory, processes, cpu_weight, .. } = &self.limits;
                limit_memory(&slice, *memory)?;
                fs::write(slice.join("pids.max"), processes.to_string())?;
                fs::write(slice.join("cpu.weight"), cpu_weight.to_string())?;
                self.limit_io(&slice)
            })
            .and_then(|()| {
                let procs = slice.join("cgroup.procs");
                let mut processes = processes.into_iter();
                processes.try_for_each(|pid| fs::write(&procs, pid.as_raw_nonzero().to_string()))
            });
        *commands.entry(tenant).or_default() += usize::from(joined.is_ok());
        joined.map_err(failed)?;
        drop(commands);
        Ok(SliceMember { slices: Arc::clone(self), tenant })
    }

    /// Removes slices without commands. One whose processes are still ending is removed later.
    fn remove_unused(&self, commands: &mut HashMap<TenantId, usize>) {
        commands.retain(|tenant, count| {
            *count > 0
                || fs::remove_dir(self.slice(*tenant))
                    .is_err_and(|error| error.kind() != ErrorKind::NotFound)
        });
    }

    fn slice(&self, tenant: TenantId) -> PathBuf {
        self.tenants.join(format!("tenant-{}", tenant.as_uuid().simple()))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TenantId, usize>> {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SliceMember {
    fn drop(&mut self) {
        let mut commands = self.slices.lock();
        if let Some(count) = commands.get_mut(&self.tenant) {
            *count = count.saturating_sub(1);
        }
        self.slices.remove_unused(&mut commands);
    }
}

/// Numbers of the disks whose I/O can be limited in the group of all tenants.
fn limited_disks(disks: &Path, tenants: &Path) -> Vec<String> {
    let entries = fs::read_dir(disks).into_iter().flatten().flatten();
    let number = |entry: fs::DirEntry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_virtual = ["loop", "ram", "zram"].iter().any(|kind| name.starts_with(kind));
        let size = fs::read_to_string(entry.path().join("size")).ok()?;
        if is_virtual || size.trim() == "0" {
            return None;
        }
        let number = fs::read_to_string(entry.path().join("dev")).ok()?.trim().to_owned();
        let none = format!("{number} rbps=max wbps=max riops=max wiops=max");
        fs::write(tenants.join("io.max"), none).is_ok().then_some(number)
    };
    entries.filter_map(number).collect()
}

/// Limits the memory of a group, which gets no swap space beyond it where swap is counted.
fn limit_memory(group: &Path, bytes: u64) -> std::io::Result<()> {
    fs::write(group.join("memory.max"), bytes.to_string())?;
    let swap = group.join("memory.swap.max");
    if swap.exists() { fs::write(swap, "0") } else { Ok(()) }
}

/// Memory for the commands of all tenants; `None` if the size of the machine is unknown.
fn all_memory(group: &Path, limits: &TenantLimits) -> Option<u64> {
    if limits.all_memory > 0 {
        return Some(limits.all_memory);
    }
    // `max` if the group has no limit; the root group has no such file.
    let of_group = fs::read_to_string(group.join("memory.max")).unwrap_or_default();
    let machine = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let machine = machine.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let machine = machine.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    let limits = [of_group.trim().parse().ok(), machine.map(|kib| kib * 1024)];
    limits.into_iter().flatten().min().map(|bytes: u64| bytes / 4 * 3)
}

fn make_group(path: &Path) -> std::io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that plays the cgroup file system.
    fn mount(controllers: &str) -> tempfile::TempDir {
        let mount = tempfile::tempdir().unwrap();
        let group = mount.path().join("unit");
        fs::create_dir(&group).unwrap();
        fs::write(group.join("cgroup.controllers"), controllers).unwrap();
        mount
    }

    /// A directory that plays the list of disks, with one that has no medium.
    fn disks() -> tempfile::TempDir {
        let disks = tempfile::tempdir().unwrap();
        for (name, number, size) in [("nvme0n1", "259:0", "5"), ("sr0", "11:0", "0")] {
            let disk = disks.path().join(name);
            fs::create_dir(&disk).unwrap();
            fs::write(disk.join("dev"), format!("{number}\n")).unwrap();
            fs::write(disk.join("size"), format!("{size}\n")).unwrap();
        }
        disks
    }

    fn read(path: impl AsRef<Path>) -> String {
        fs::read_to_string(path).unwrap()
    }

    #[test]
    fn all_commands_of_a_tenant_are_in_one_slice_which_goes_with_the_last() {
        let mount = mount("cpuset cpu io memory pids");
        let limits = TenantLimits {
            memory: 1 << 20,
            processes: 7,
            cpu_weight: 50,
            ..TenantLimits::default()
        };
        fs::write(mount.path().join("unit/memory.max"), "4194304\n").unwrap();
        let disks = disks();
        let system = (mount.path(), disks.path());
        let slices = TenantSlices::open(system, "1:x:/y\n0::/unit\n", limits).unwrap();
        let (slices, group) = (Arc::new(slices), mount.path().join("unit"));
        let (one, other) = (TenantId::generate(), TenantId::generate());
        let pid = |pid| Pid::from_raw(pid).unwrap();
        // The system counts swap here.
        fs::create_dir(slices.slice(one)).unwrap();
        fs::write(slices.slice(one).join("memory.swap.max"), "max").unwrap();

        let first = slices.join(one, [pid(101), pid(102)]).unwrap();
        let second = slices.join(one, [pid(103)]).unwrap();
        let _other = slices.join(other, [pid(104)]).unwrap();

        let own = rustix::process::getpid().as_raw_nonzero().to_string();
        assert_eq!(read(group.join("holdfast-runner/cgroup.procs")), own);
        assert_eq!(read(group.join("cgroup.subtree_control")), "+cpu +memory +pids +io");
        assert_eq!(read(group.join("tenants/cgroup.subtree_control")), "+cpu +memory +pids +io");
        assert_eq!(read(group.join("tenants/memory.max")), "3145728");
        let slice = slices.slice(one);
        assert_eq!(read(slice.join("memory.max")), "1048576");
        assert_eq!(read(slice.join("memory.swap.max")), "0");
        assert_eq!(read(slice.join("pids.max")), "7");
        assert_eq!(read(slice.join("cpu.weight")), "50");
        assert_eq!(read(slice.join("cgroup.procs")), "103");
        assert_eq!(read(slices.slice(other).join("cgroup.procs")), "104");
        // Files do not keep a group of the real file system.
        for entry in fs::read_dir(&slice).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        drop(first);
        assert!(slice.exists());
        drop(second);
        assert!(!slice.exists());
    }

    #[test]
    fn disk_io_of_a_tenant_is_limited_where_its_controller_is_delegated() {
        let limits = || TenantLimits {
            io_weight: 50,
            io_bytes: 1 << 20,
            io_operations: 0,
            ..TenantLimits::default()
        };
        let (disks, tenant) = (disks(), TenantId::generate());
        let pid = || [Pid::from_raw(101).unwrap()];

        let with_io = mount("cpu io memory pids");
        let system = (with_io.path(), disks.path());
        let slices = Arc::new(TenantSlices::open(system, "0::/unit\n", limits()).unwrap());
        let slice = slices.slice(tenant);
        fs::create_dir(&slice).unwrap();
        // This system weighs.
        fs::write(slice.join("io.weight"), "default 100").unwrap();
        let _member = slices.join(tenant, pid()).unwrap();
        assert_eq!(read(slice.join("io.weight")), "default 50");
        assert_eq!(
            read(slice.join("io.max")),
            "259:0 rbps=1048576 wbps=1048576 riops=max wiops=max"
        );

        let without_io = mount("cpu memory pids");
        let system = (without_io.path(), disks.path());
        let slices = Arc::new(TenantSlices::open(system, "0::/unit\n", limits()).unwrap());
        let _member = slices.join(tenant, pid()).unwrap();
        assert!(!slices.slice(tenant).join("io.max").exists());
        let enabled = read(without_io.path().join("unit/cgroup.subtree_control"));
        assert_eq!(enabled, "+cpu +memory +pids");
    }

    #[test]
    fn a_machine_without_slices_says_why() {
        let limits = TenantLimits::default;
        let disks = disks();
        let open =
            |mount: &Path, own| TenantSlices::open((mount, disks.path()), own, limits()).map(drop);
        let whole = mount("cpu memory pids");
        assert_eq!(open(whole.path(), "4:memory:/unit\n"), Err(NoSlices::NotMounted));
        assert_eq!(open(whole.path(), "0::/elsewhere\n"), Err(NoSlices::NotMounted));
        let poor = mount("cpu pids");
        assert_eq!(open(poor.path(), "0::/unit\n"), Err(NoSlices::NoController("memory")));

        let scope = LimitScope::Processes(NoSlices::NotWritable);
        assert_eq!(scope.to_string(), "limits: per process only: cgroup v2 is not writable");
    }

    /// Tests that `tests/tools.py` leaves out where no slices can be made.
    mod needs_cgroups {
        use super::*;

        /// Leaves this process in a group of its own, as a runner does.
        #[test]
        fn a_command_is_in_its_tenants_slice_of_the_real_file_system() {
            let LimitScope::Tenants(slices) = LimitScope::of_this_process(&TenantLimits::default())
            else {
                panic!("this system has no slices")
            };
            let mut command = std::process::Command::new("sleep").arg("30").spawn().unwrap();
            let pid = Pid::from_child(&command);
            let tenant = TenantId::generate();

            let member = slices.join(tenant, [pid]).unwrap();

            let group = read(format!("/proc/{}/cgroup", command.id()));
            assert!(group.contains(&format!("tenant-{}", tenant.as_uuid().simple())), "{group}");
            command.kill().unwrap();
            command.wait().unwrap();
            drop(member);
            assert!(!slices.slice(tenant).exists());
        }
    }
}
