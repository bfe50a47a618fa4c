/**
 * A Windows that is an agent only: it answers what our scripts for PowerShell would, and keeps a name, a directory and whether
 * it was generalized. What a script does is known by its text; what Windows makes of it only a real one can tell.
 */
import type { Answer, FakeAgent } from './fake-agent.ts';

interface Started {
  exitcode: number;
  out: string;
}

export class ScriptedWindows {
  activeName = 'WIN-OLD';
  nextName = 'WIN-OLD';
  directory = '';
  imageState = 'IMAGE_STATE_COMPLETE';
  starts = 1;
  /** The directory that answers, and who may join it. */
  readonly known = { directory: 'lab.test', login: 'Administrator', password: '' };
  /** What each script was given on its standard input, newest last. */
  readonly given: Record<string, string>[] = [];
  /** Arguments and paths of all programs, as text: nothing secret may be in them. */
  readonly commandLines: string[] = [];
  readonly shutdowns: unknown[] = [];
  #pid = 100;
  readonly #started = new Map<number, Started>();

  /** Makes the agent that of this Windows. */
  drive(agent: FakeAgent): this {
    agent
      .on('guest-get-osinfo', () => ({
        return: { id: 'mswindows', name: 'Microsoft Windows', 'pretty-name': 'Windows Server 2022' },
      }))
      .on('guest-exec', args => this.#exec(args))
      .on('guest-exec-status', args => this.#status(args))
      .on('guest-shutdown', args => {
        this.shutdowns.push(args.mode);
        if (args.mode === 'reboot') this.#restart();
        return { return: {} };
      });
    return this;
  }

  #restart(): void {
    this.starts += 1;
    this.activeName = this.nextName;
  }

  #exec({ path, arg, 'input-data': input }: Record<string, unknown>): Answer {
    const outer = decoded((arg as string[]).at(-1)!);
    const inner = decoded(/-EncodedCommand ([A-Za-z0-9+/=]{40,})/.exec(outer)?.[1] ?? '');
    this.commandLines.push(`${String(path)} ${outer} ${inner}`);
    const given = JSON.parse(Buffer.from(String(input ?? ''), 'base64').toString() || '{}') as Record<
      string,
      string
    >;
    this.given.push(given);
    this.#pid += 1;
    const answer = this.#answer(inner, given);
    this.#started.set(this.#pid, {
      exitcode: 'failed' in answer ? 1 : 0,
      out: `${JSON.stringify(answer)}\r\n`,
    });
    return { return: { pid: this.#pid } };
  }

  #status({ pid }: Record<string, unknown>): Answer {
    const found = this.#started.get(Number(pid));
    if (!found) return { error: { class: 'GenericError', desc: "Invalid parameter 'pid'" } };
    this.#started.delete(Number(pid));
    const { exitcode, out } = found;
    return { return: { exited: true, exitcode, 'out-data': Buffer.from(out).toString('base64') } };
  }

  #answer(script: string, given: Record<string, string>): Record<string, unknown> {
    const has = (text: string) => script.includes(text);
    if (has('LastBootUpTime')) return { boot: String(this.starts) };
    if (has('Start-Process')) return this.#sysprep(given);
    if (has('Add-Computer')) return this.#join(given);
    if (has('Remove-Computer')) return this.#leave(given);
    if (has('Rename-Computer')) this.nextName = given.name!;
    if (has('ActiveComputerName')) return { active: this.activeName, next: this.nextName };
    if (has('PartOfDomain')) return this.#domain();
    return { failed: 'other', reason: 'the script is not known' };
  }

  #domain(): Record<string, unknown> {
    const { directory, activeName } = this;
    return { joined: directory !== '', domain: directory || 'WORKGROUP', name: activeName };
  }

  #login({ login, password }: Record<string, string>): Record<string, unknown> | undefined {
    const { known } = this;
    if (login === known.login && password === known.password) return undefined;
    return { failed: 'login', reason: `Der Benutzername oder das Kennwort ist falsch: ${password}` };
  }

  #join(given: Record<string, string>): Record<string, unknown> {
    if (given.directory !== this.known.directory) return { failed: 'directory', reason: 'Die Domäne fehlt.' };
    const refused = this.#login(given);
    if (refused) return refused;
    this.directory = given.directory;
    if (given.name) this.nextName = given.name;
    return this.#domain();
  }

  #leave(given: Record<string, string>): Record<string, unknown> {
    if (this.directory === '') return { failed: 'none', reason: 'it is in no directory' };
    const refused = this.#login(given);
    if (refused) return refused;
    const former = this.directory;
    this.directory = '';
    return { former, joined: false, name: this.activeName };
  }

  #sysprep({ switches }: Record<string, string>): Record<string, unknown> {
    if (switches!.includes('/generalize')) this.imageState = 'IMAGE_STATE_GENERALIZE_RESEAL_TO_OOBE';
    return { code: 0, state: this.imageState };
  }
}

const decoded = (text: string): string => Buffer.from(text, 'base64').toString('utf16le');
