import { accessSync, constants } from 'node:fs';

/**
 * Starts the same program anew in this process (its pid, its descriptors) with further flags of Node, which count only when they are there
 * before a process starts. Returns where that cannot be, and the program goes on without them; what else fails ends it in Node before 26.
 */
export function replaceProcess(flags: readonly string[], env: NodeJS.ProcessEnv): void {
  const others = process.execArgv.filter(flag => !flags.includes(flag));
  const args = [process.argv0, ...others, ...flags, ...process.argv.slice(1)];
  try {
    accessSync(process.execPath, constants.X_OK);
    process.execve?.(process.execPath, args, env);
  } catch {
    // it costs memory, nothing else
  }
}
