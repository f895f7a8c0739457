//! Memory that this process can still have. A container has less than its machine.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// Bytes of memory that this process can have without swapping: the least of what the system has free and of what each of the process's control
/// groups still allows. `None` if the system does not say, as is the case outside Linux.
pub fn free_memory() -> Option<u64> {
    free_below(Path::new("/"))
}

/// [`free_memory`] with another folder in the place of `/`.
fn free_below(root: &Path) -> Option<u64> {
    let free = free_in_system(&root.join("proc/meminfo"));
    let groups = Hierarchy::all(root).into_iter().filter_map(|hierarchy| hierarchy.allowance(root)).min();
    free.into_iter().chain(groups).min()
}

/// The estimate of the kernel, which counts caches that it can drop.
fn free_in_system(meminfo: &Path) -> Option<u64> {
    let text = read_to_string(meminfo).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

/// A tree of control groups that may limit memory, as it is mounted here, and this process's group in it.
struct Hierarchy {
    /// The names of the files that have the limit and the usage, and of the line of `memory.stat` that has the file cache.
    files: &'static [&'static str; 3],
    /// The mount point, relative to `/`.
    mount: PathBuf,
    /// The process's group, relative to the mount point.
    group: PathBuf,
}

/// Of version 2 (`cgroup2`) and of version 1. The inactive part of the file cache counts as usage, but the kernel drops it first.
const FILES: [&[&str; 3]; 2] = [
    &["memory.max", "memory.current", "inactive_file "],
    &["memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "],
];

/// Bytes that no machine has: such a limit of version 1 is none. (Its files have the greatest multiple of a page below 2^63.)
const UNLIMITED: u64 = 1 << 62;

impl Hierarchy {
    /// The mounted hierarchies that may limit memory: one or both versions.
    fn all(root: &Path) -> Vec<Hierarchy> {
        let read = |name| read_to_string(root.join(name)).unwrap_or_default();
        let (groups, mounts) = (read("proc/self/cgroup"), read("proc/self/mountinfo"));
        let group_of = |is_version_1: bool| {
            // Each line has the hierarchy's number, its controllers and the group. Version 2 has number 0 and no controller.
            let mut lines = groups.lines().filter_map(|line| {
                let mut parts = line.splitn(3, ':');
                Some((parts.next()?, parts.next()?, parts.next()?))
            });
            lines.find_map(|(number, controllers, group)| {
                let is_this = match is_version_1 {
                    true => controllers.split(',').any(|it| it == "memory"),
                    false => number == "0",
                };
                is_this.then_some(group)
            })
        };
        let hierarchy = |line: &str| {
            // Before the dash: number, parent, device, the part of the file system that is mounted, the mount point. After it: type, source, options.
            let (mount, file_system) = line.split_once(" - ")?;
            let mut mount = mount.split(' ').skip(3);
            let (mounted, point) = (mount.next()?, mount.next()?);
            let mut file_system = file_system.split(' ');
            let is_version_1 = match file_system.next()? {
                "cgroup2" => false,
                "cgroup" if file_system.nth(1)?.split(',').any(|option| option == "memory") => true,
                _ => return None,
            };
            let group = Path::new(group_of(is_version_1)?);
            // A container may see its own group at the mount point, under a name that the group has outside.
            let group = group.strip_prefix(mounted).unwrap_or(Path::new(""));
            let relative = |path: &Path| path.strip_prefix("/").unwrap_or(path).to_path_buf();
            Some(Hierarchy {
                files: FILES[usize::from(is_version_1)],
                mount: relative(Path::new(point)),
                group: relative(group),
            })
        };
        mounts.lines().filter_map(hierarchy).collect()
    }

    /// Bytes that the process's group and all groups above it still allow; `None` if none has a limit.
    fn allowance(&self, root: &Path) -> Option<u64> {
        let [limit, usage, cache] = *self.files;
        let of_group = |group: &Path| {
            let folder = root.join(&self.mount).join(group);
            let number = |name| read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
            // Without a limit, version 2 has the word `max` there, and version 1 a number of this size. The other files need not be read then.
            let limit = number(limit).filter(|limit| *limit < UNLIMITED)?;
            let usage = number(usage)?;
            let stat = read_to_string(folder.join("memory.stat")).unwrap_or_default();
            let cache = stat.lines().find_map(|line| line.strip_prefix(cache)?.parse().ok()).unwrap_or(0);
            Some(limit.saturating_sub(usage.saturating_sub(cache)))
        };
        self.group.ancestors().filter_map(of_group).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const MIB: u64 = 1 << 20;

    /// A root folder with these files.
    fn system(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    const MACHINE: (&str, &str) =
        ("proc/meminfo", "MemTotal: 8388608 kB\nMemFree: 1 kB\nMemAvailable:    4194304 kB\n");
    const GROUP: (&str, &str) = ("proc/self/cgroup", "0::/user.slice/run\n");
    const MOUNTS: (&str, &str) =
        ("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");

    #[test]
    fn a_machine_without_groups_has_what_is_free() {
        assert_eq!(free_below(system(&[MACHINE]).path()), Some(4096 * MIB));
        assert_eq!(free_below(system(&[]).path()), None);
        let text = [("proc/meminfo", "MemAvailable: many kB\n")];
        assert_eq!(free_below(system(&text).path()), None);
    }

    #[test]
    fn every_group_up_to_the_root_counts() {
        let own = "sys/fs/cgroup/user.slice/run";
        for (limited, above) in [(own, "sys/fs/cgroup/user.slice"), ("sys/fs/cgroup/user.slice", own)] {
            let [limit, usage, stat] =
                ["memory.max", "memory.current", "memory.stat"].map(|it| format!("{limited}/{it}"));
            let [other, its] = ["memory.max", "memory.current"].map(|it| format!("{above}/{it}"));
            let files = [
                MACHINE,
                GROUP,
                MOUNTS,
                (&limit, "104857600\n"),
                (&usage, "62914560\n"),
                (&stat, "anon 3\nfile 8\ninactive_file 10485760\n"),
                (&other, "max\n"),
                (&its, "62914560\n"),
            ];
            assert_eq!(free_below(system(&files).path()), Some(50 * MIB), "{limited}");
            // The limit is reached, or was lowered below the usage.
            let full = files.map(|(name, text)| if name == limit { (name, "1000\n") } else { (name, text) });
            assert_eq!(free_below(system(&full).path()), Some(0), "{limited}");
            // `max` changes nothing, and a limit above what is free neither.
            for text in ["max\n", "1099511627776\n"] {
                let most = files.map(|(name, was)| if name == limit { (name, text) } else { (name, was) });
                assert_eq!(free_below(system(&most).path()), Some(4096 * MIB), "{limited}");
            }
        }
    }

    #[test]
    fn version_1_and_both_together_count() {
        let unlimited = "9223372036854771712\n";
        let mut files = vec![
            MACHINE,
            ("proc/self/cgroup", "4:cpu,memory:/docker/abc\n1:name=systemd:/docker/abc\n0::/\n"),
            // The container sees its own group at the mount point.
            (
                "proc/self/mountinfo",
                "30 23 0:26 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,cpu,memory\n\
                 31 23 0:27 /docker/abc /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n\
                 32 23 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
            ),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "209715200\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "104857600\n"),
            ("sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 1048576\n"),
        ];
        assert_eq!(free_below(system(&files).path()), Some(101 * MIB));
        files[3].1 = unlimited;
        assert_eq!(free_below(system(&files).path()), Some(4096 * MIB));
        files.push(("sys/fs/cgroup/unified/memory.max", "20971520\n"));
        files.push(("sys/fs/cgroup/unified/memory.current", "0\n"));
        assert_eq!(free_below(system(&files).path()), Some(20 * MIB));
    }

    #[test]
    fn text_that_is_none_is_no_limit() {
        for text in ["", "0::\n", "::::::\n", "0::/../..\n", "\0"] {
            for mounts in ["", " - \n", "1 2 3 / / - cgroup2\n", "1 - cgroup2 - cgroup2\n"] {
                let files = [MACHINE, ("proc/self/cgroup", text), ("proc/self/mountinfo", mounts)];
                assert_eq!(free_below(system(&files).path()), Some(4096 * MIB), "{text:?} {mounts:?}");
            }
        }
    }

    #[test]
    fn this_machine_tells() {
        let free = free_memory();
        assert_eq!(free.is_some(), cfg!(target_os = "linux"));
        assert!(free.is_none_or(|free| free > MIB), "{free:?}");
    }
}
