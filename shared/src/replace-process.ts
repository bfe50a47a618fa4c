/**
 * Starts the same program anew in this process (its pid, its descriptors) with further flags of Node, which count only when they are there
 * before a process starts. Returns where the system cannot do it: the program goes on without them.
 */
export function replaceProcess(flags: readonly string[], env: NodeJS.ProcessEnv): void {
  const others = process.execArgv.filter(flag => !flags.includes(flag));
  const args = [process.argv0, ...others, ...flags, ...process.argv.slice(1)];
  try {
    process.execve?.(process.execPath, args, env);
  } catch {
    // it costs memory, nothing else
  }
}
