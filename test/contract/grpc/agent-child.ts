import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as grpc from '@grpc/grpc-js';
import { DomainServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { OperationServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { newId } from '@virtkeep/shared/ids';
import { createChannel, createClientFactory } from 'nice-grpc';
import { errorDetailsClientMiddleware } from 'nice-grpc-error-details';
import { HealthDefinition } from 'nice-grpc-server-health';
import { stringify } from 'yaml';
import { storeIdentity } from '../../../agent/src/enroll/identity.ts';
import type { CertificateAuthority } from '../../../controller/src/pki/authority.ts';
import { programFile } from '../../lab/paths.ts';
import { tableErrors } from '../../lab/table-errors.ts';
import { issue, newAuthority } from './pki.ts';

const MAIN = programFile('virtkeep-agent');

type LogLine = Record<string, unknown>;

/** libvirt's own mock driver: one running domain, no daemon, no guest. */
export const MOCK_LIBVIRT = 'test:///default';
export const MOCK_DOMAIN = '6695eb01-f6a4-8304-79aa-97f2502e193f';

/** The home of an agent process: settings, certificate, state. By default its libvirt URI leads nowhere. */
export class AgentHome {
  readonly nodeId = newId();
  readonly directory = mkdtempSync(join(tmpdir(), 'virtkeep-agent-'));
  readonly ca: CertificateAuthority;

  private constructor(ca: CertificateAuthority) {
    this.ca = ca;
  }

  static async make(settings: object = {}): Promise<AgentHome> {
    const home = new AgentHome(await newAuthority());
    const own = await issue(home.ca, 'server', [`urn:virtkeep:node:${home.nodeId}`]);
    await storeIdentity(join(home.directory, 'tls'), {
      keyPem: own.privateKeyPem,
      certificatePem: own.certificatePem,
      caPem: home.ca.certificatePem,
    });
    home.write({
      state_dir: home.directory,
      listen: { address: '127.0.0.1', port: 0 },
      libvirt: { uri: `qemu+unix:///system?socket=${home.directory}/no-libvirt` },
      log: { level: 'debug' },
      ...settings,
    });
    return home;
  }

  get config(): string {
    return join(this.directory, 'agent.yaml');
  }

  write(settings: object): void {
    writeFileSync(this.config, stringify(settings));
  }

  /** Clients of the agent on this port, with the role of the controller; close the channel. */
  async clients(port: number) {
    const certificate = await issue(this.ca, 'client', ['urn:virtkeep:role:controller']);
    const credentials = grpc.credentials.createSsl(
      Buffer.from(this.ca.certificatePem),
      Buffer.from(certificate.privateKeyPem),
      Buffer.from(certificate.chainPem),
    );
    const channel = createChannel(`localhost:${port}`, credentials);
    const factory = createClientFactory().use(errorDetailsClientMiddleware).use(tableErrors('test'));
    return {
      channel,
      domains: factory.create(DomainServiceDefinition, channel),
      operations: factory.create(OperationServiceDefinition, channel),
      health: factory.create(HealthDefinition, channel),
    };
  }

  remove(): void {
    rmSync(this.directory, { recursive: true, force: true });
  }
}

/** A running agent; its log is read line by line. */
export class AgentChild {
  readonly process: ChildProcess;
  readonly lines: LogLine[] = [];
  readonly exited: Promise<number | string>;
  /** Everything that was not a log line. */
  text = '';
  #rest = '';
  /** It has ended, and all that it said was read. */
  #closed = false;
  #wake = Promise.withResolvers<void>();

  constructor(args: string[], environment: Record<string, string> = {}) {
    this.process = spawn(process.execPath, [MAIN, ...args], { env: { ...process.env, ...environment } });
    this.process.stdout?.on('data', (data: Buffer) => this.#read(data));
    this.process.stderr?.on('data', (data: Buffer) => this.#read(data));
    this.exited = once(this.process, 'close').then(([code, signal]) => (code ?? signal) as number | string);
    void this.exited.then(() => {
      this.#closed = true;
      this.#wake.resolve();
    });
  }

  static serve(home: AgentHome, environment: Record<string, string> = {}): AgentChild {
    return new AgentChild(['--config', home.config], environment);
  }

  /** The first log line with this message. @throws Error when the process ends without it. */
  async line(message: string): Promise<LogLine> {
    for (;;) {
      const found = this.lines.find(line => line.message === message);
      if (found) return found;
      if (this.#closed) {
        throw new Error(`the agent ended without "${message}": ${this.text}${JSON.stringify(this.lines)}`);
      }
      this.#wake = Promise.withResolvers<void>();
      await this.#wake.promise;
    }
  }

  async port(): Promise<number> {
    return (await this.line('agent is serving')).port as number;
  }

  #read(data: Buffer): void {
    const lines = (this.#rest + data.toString()).split('\n');
    this.#rest = lines.pop() ?? '';
    for (const line of lines) {
      if (line.startsWith('{')) this.lines.push(JSON.parse(line) as LogLine);
      else this.text += `${line}\n`;
    }
    this.#wake.resolve();
  }
}
