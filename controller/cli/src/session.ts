import { readFileSync, rmSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { writeDurably } from '@virtkeep/shared/durable-file';
import { CliError, ExitCode } from './exit-codes.ts';

/** Where the controller is and who we are. */
export interface Session {
  url: string;
  token?: string;
  /** Path of the CA certificate that signed the controller's; the system's CAs when absent. */
  ca?: string;
}

function sessionPath(): string {
  const base = process.env.XDG_CONFIG_HOME ?? join(homedir(), '.config');
  return join(base, 'virtkeep', 'session.json');
}

/**
 * The session: the environment (VIRTKEEP_URL, VIRTKEEP_TOKEN, VIRTKEEP_CA) before the file that `login` wrote.
 * @throws CliError when neither names a controller.
 */
export function loadSession(): Session {
  const saved = savedSession();
  const url = process.env.VIRTKEEP_URL ?? saved?.url;
  if (!url)
    throw new CliError(
      'No controller is known. Run "virtkeep login --url https://HOST" first.',
      ExitCode.notAllowed,
    );
  // A saved token belongs to the saved controller and is never sent to another one.
  const own = saved?.url === url ? saved : undefined;
  const token = process.env.VIRTKEEP_TOKEN ?? own?.token;
  const ca = process.env.VIRTKEEP_CA ?? own?.ca;
  return { url, ...(token ? { token } : {}), ...(ca ? { ca } : {}) };
}

/** What `login` wrote. */
export function savedSession(): Session | undefined {
  try {
    return JSON.parse(readFileSync(sessionPath(), 'utf8')) as Session;
  } catch {
    return undefined;
  }
}

/** Stores the session readable by the user alone. */
export async function saveSession(session: Session): Promise<string> {
  const path = sessionPath();
  await writeDurably(path, `${JSON.stringify(session, null, 2)}\n`, 0o600);
  return path;
}

export function forgetSession(): void {
  rmSync(sessionPath(), { force: true });
}
