import { hostname } from 'node:os';
import { parseArgs } from 'node:util';
import { connect } from '@virtkeep/node-libvirt';
import { ConfigError } from '@virtkeep/shared/config';
import { runDaemonCommand, UsageError } from '@virtkeep/shared/daemon-cli';
import { reasonOf } from '@virtkeep/shared/errors';
import { createLogger } from '@virtkeep/shared/log';
import { type AgentConfig, journalPath, loadAgentConfig } from './config.ts';
import { readToken } from './enroll/token.ts';
import { unsettledIn } from './operations/unsettled.ts';
import { serve } from './serve.ts';
import { AGENT_VERSION } from './version.ts';

const USAGE = `virtkeep-agent ${AGENT_VERSION}

usage: virtkeep-agent [serve] --config FILE
       virtkeep-agent enroll --config FILE --controller https://HOST:PORT --token - [--ca FILE|system]
       virtkeep-agent unsettled --config FILE    (operations that a stopped agent has not ended or undone; nothing when all is well)
       virtkeep-agent --version | --help

The token is read from the environment variable VIRTKEEP_ENROLL_TOKEN, or from standard input. Given as an argument it
stands in every list of processes. --ca names who signed the certificate that the controller shows, where that is not
its own authority: a file of certificates, or system for those that this machine trusts.
`;

const OPTIONS = {
  config: { type: 'string', short: 'c' },
  controller: { type: 'string' },
  token: { type: 'string' },
  ca: { type: 'string' },
  version: { type: 'boolean' },
  help: { type: 'boolean', short: 'h' },
} as const;

/** Runs a command line; ends the process with 0, 1, 64 (usage) or 78 (settings, enrolment). */
export function runCli(argv: string[]): Promise<never> {
  return runDaemonCommand('virtkeep-agent', () => runCommand(argv));
}

async function runCommand(argv: string[]): Promise<void> {
  const { values, command } = parse(argv);
  if (values.help) return void process.stdout.write(USAGE);
  if (values.version) return void process.stdout.write(`${AGENT_VERSION}\n`);
  if (!values.config) throw new UsageError('--config FILE is missing (see --help)');
  const config = loadAgentConfig(values.config);
  if (command === 'serve') return serve(config, createLogger('virtkeep-agent', config.log.level));
  if (command === 'unsettled') {
    for (const line of unsettledIn(journalPath(config))) process.stdout.write(`${line}\n`);
    return;
  }
  if (!values.controller || !values.token)
    throw new UsageError('enroll needs --controller and --token - (see --help)');
  await enrolCommand(config, { controller: values.controller, token: values.token, ca: values.ca });
}

function parse(argv: string[]) {
  try {
    const { values, positionals } = parseArgs({ args: argv, options: OPTIONS, allowPositionals: true });
    const [command = 'serve', ...rest] = positionals;
    if (rest.length > 0 || !['serve', 'enroll', 'unsettled'].includes(command)) {
      throw new Error(`unknown command "${positionals.join(' ')}"`);
    }
    return { values, command };
  } catch (error) {
    throw new UsageError(`${reasonOf(error)} (see --help)`);
  }
}

async function enrolCommand(
  config: AgentConfig,
  { controller, token, ca }: { controller: string; token: string; ca: string | undefined },
): Promise<void> {
  // not loaded by the service: it holds 6 MiB
  const { enrol } = await import('./enroll/enroll.ts');
  const identity = await enrol({
    controller,
    token: readToken(token),
    ca,
    nodeId: config.node_id ?? (await hostUuid(config)),
    hostname: hostname(),
    address: config.advertise.address,
    port: config.advertise.port ?? config.listen.port,
    directory: config.tls.dir,
  });
  process.stdout.write(
    `Enrolled as node ${identity.nodeId}; the certificate in ${config.tls.dir} is valid until ${identity.expires.toISOString()}.\n`,
  );
}

async function hostUuid(config: AgentConfig): Promise<string> {
  try {
    await using libvirt = await connect(config.libvirt.uri, { events: false });
    return await libvirt.hostUuid();
  } catch (error) {
    throw new ConfigError(
      `the host UUID cannot be read from libvirt at ${config.libvirt.uri} (${reasonOf(error)}); start libvirt or set node_id`,
    );
  }
}
