/**
 * Starts the same program anew in this process (its pid, its descriptors) with other flags of Node, which count only when they are there
 * before a process starts. Returns only where Node cannot do it (before 23.11).
 */
export function replaceProcess(flags: readonly string[], env: NodeJS.ProcessEnv): void {
  if (process.execve === undefined) return;
  const others = process.execArgv.filter(flag => !flags.includes(flag));
  const args = [process.argv0, ...others, ...flags, ...process.argv.slice(1)];
  process.execve(process.execPath, args, env);
}
