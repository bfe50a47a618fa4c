/** Looks for secrets where they must not be: in files, and in the arguments of processes for as long as it watches. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Guest } from '../lab/guest.ts';

/** A secret as it stands, and as it is on its way to a guest's program. */
const formsOf = (secret: string) => [
  secret,
  Buffer.from(secret).toString('base64').replace(/=+$/, '').slice(0, -1),
];

/** The files below directories that hold a secret; `seen` counts the files looked into. */
export function filesWith(
  secrets: readonly string[],
  dirs: readonly string[],
): { found: string[]; seen: number } {
  const forms = secrets.flatMap(formsOf);
  const files = dirs.flatMap(dir =>
    readdirSync(dir, { recursive: true, withFileTypes: true })
      .filter(entry => entry.isFile())
      .map(entry => join(entry.parentPath, entry.name)),
  );
  const holds = (file: string) => {
    const data = readFileSync(file);
    return forms.some(form => data.includes(form));
  };
  return { found: files.filter(holds), seen: files.length };
}

const LOOK_EVERY_MS = 250;

/** Watches the arguments and the environment of all processes of this machine. */
export class ProcessWatch {
  readonly #forms: string[];
  readonly #found = new Set<string>();
  readonly #timer: NodeJS.Timeout;
  /** So often all processes were looked at. */
  looks = 0;

  constructor(secrets: readonly string[]) {
    this.#forms = secrets.flatMap(formsOf);
    this.#timer = setInterval(() => this.#look(), LOOK_EVERY_MS);
  }

  /** @returns the processes that were seen with a secret */
  stop(): string[] {
    clearInterval(this.#timer);
    return [...this.#found];
  }

  #look(): void {
    this.looks += 1;
    for (const pid of readdirSync('/proc').filter(name => /^\d+$/.test(name)))
      for (const what of ['cmdline', 'environ']) {
        const text = read(`/proc/${pid}/${what}`);
        if (this.#forms.some(form => text.includes(form)))
          this.#found.add(`${pid} ${what}: ${text.slice(0, 200)}`);
      }
  }
}

function read(path: string): string {
  try {
    return readFileSync(path, 'utf8').replaceAll('\0', ' ');
  } catch {
    return ''; // ended meanwhile
  }
}

const SEEN = '/var/tmp/seen';

/** Patterns that match secrets and not themselves: they may stand in arguments. */
export const patternOf = (secrets: readonly string[]) =>
  secrets.map(secret => `[${secret[0]}]${secret.slice(1).replaceAll('.', '[.]')}`).join('|');

/** Watches the arguments of the processes in a guest, until that is restarted. */
export async function watchGuest(guest: Guest, secrets: readonly string[]): Promise<void> {
  const script = `while :; do echo . >> ${SEEN}.looks
grep -aEl "$0" /proc/[0-9]*/cmdline >> ${SEEN}; sleep 2; done 2>/dev/null`;
  // as a unit of its own: the agent may be restarted
  const started = await guest.exec('/usr/bin/systemd-run', ['sh', '-c', script, patternOf(secrets)]);
  if (started.exitCode !== 0) throw new Error(started.stderr);
}

/** What `watchGuest` found, and how often it looked. */
export async function secretsSeen(guest: Guest): Promise<{ found: string; looks: number }> {
  const looks = Number(await guest.sh(`wc -l < ${SEEN}.looks`));
  return { found: await guest.sh(`cat ${SEEN}`), looks };
}
