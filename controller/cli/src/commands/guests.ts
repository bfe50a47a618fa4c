/** `vm guest-info`, and the operations inside of guests: host name, directory, SSH keys, preparation, guest tools. */
import { readFileSync } from 'node:fs';
import type { Command } from 'commander';
import type { Client, Json } from '../client.ts';
import { type GlobalOptions, withClient } from '../context.ts';
import { CliError, ExitCode } from '../exit-codes.ts';
import { runAction } from '../follow.ts';
import { type LayerOptions, layerFields, withLayerOptions } from '../options.ts';
import { bytes, clean, print, printFields, printJson, printTable } from '../output.ts';
import { askPassword, warnOfPlainHttp } from '../prompt.ts';
import { type Named, resolve } from '../resolve.ts';
import { loadSession } from '../session.ts';
import { addCopy } from './guest-copy.ts';
import { addExec } from './guest-exec.ts';

export function addGuests(program: Command): void {
  const vms = program.commands.find(command => command.name() === 'vms')!;
  addInfo(vms);
  addExec(vms);
  addCopy(vms);
  addHostname(vms);
  addSshKeys(vms);
  addDirectory(vms);
  addPreparation(vms);
  addTools(vms);
}

interface GuestOperation {
  path: string;
  body: (client: Client, domain: Named) => Json | Promise<Json>;
  /** Its result, for people. */
  tell: (result: Json) => string;
}

/** Starts an operation in a guest, follows it, and prints its result. */
async function operate(command: Command, vm: string, { path, body, tell }: GuestOperation): Promise<void> {
  const { json } = command.optsWithGlobals<GlobalOptions>();
  await withClient(async client => {
    const domain = await resolve(client, 'domains', vm);
    const fields = await body(client, domain);
    const task = await runAction(client, `/api/domains/${domain.id}/${path}/`, fields, { quiet: json });
    if (json) return printJson(task);
    const { response } = await client.get<{ response: Json }>(`/api/tasks/${task.id}/response/`);
    print(clean(`${domain.verbose_name}: ${tell(response)}`));
  });
}

function addInfo(vms: Command): void {
  vms
    .command('guest-info <vm>')
    .alias('guest_info')
    .description('what the guest tells of itself')
    .option('--refresh', 'ask it now')
    .action(async (vm: string, { refresh }: { refresh?: boolean }, command: Command) => {
      const info = await withClient(async client => {
        const { id } = await resolve(client, 'domains', vm);
        return client.get(`/api/domains/${id}/guest-info/`, refresh ? { refresh: 1 } : {});
      });
      if (command.optsWithGlobals<GlobalOptions>().json) return printJson(info);
      const os = (info.os ?? {}) as Record<string, string>;
      printFields([
        [
          'agent',
          info.qemu_state ? `connected, version ${info.agent_version ?? 'unknown'}` : 'not connected',
        ],
        ['told', info.refreshed ?? 'nothing yet'],
        ['hostname', info.hostname],
        ['ipv4', (info.ipv4 as string[]).join(', ')],
        ['ipv6', (info.ipv6 as string[]).join(', ')],
        ['system', `${os['pretty-name'] ?? ''} ${os.machine ?? ''}`.trim()],
        ['kernel', os['kernel-release']],
        ...(info.frozen_since ? ([['frozen since', info.frozen_since]] as [string, unknown][]) : []),
        ...(info.file_systems as Json[]).map((one): [string, unknown] => [
          'file system',
          `${one.mountpoint} ${one.type} ${bytes(one.used_bytes)} of ${bytes(one.total_bytes)}`,
        ]),
        ...(info.users as Json[]).map((one): [string, unknown] => [
          'user',
          `${one.name} since ${one.login_time ?? 'unknown'}`,
        ]),
      ]);
    });
}

interface HostnameOptions extends LayerOptions {
  restart: boolean;
}

function addHostname(vms: Command): void {
  withLayerOptions(vms.command('set-hostname <vm> [hostname]'))
    .description('set the host name of the guest; without one it is the name of the VM')
    .option('--no-restart', 'do not restart a Windows guest')
    .action((vm: string, hostname: string | undefined, options: HostnameOptions, command: Command) =>
      operate(command, vm, {
        path: 'set-hostname',
        body: () => ({
          ...(hostname === undefined ? {} : { hostname }),
          restart: options.restart,
          ...layerFields(options),
        }),
        tell: result => `host name ${result.hostname}${restarted(result)}`,
      }),
    );
}

function addSshKeys(vms: Command): void {
  const keys = vms.command('ssh-key').description('SSH keys of a user of the guest');
  keys
    .command('list <vm> [user]')
    .description("list the keys of a user, root's when none is named")
    .action(async (vm: string, user: string | undefined, _options, command: Command) => {
      const found = await withClient(async client => {
        const { id } = await resolve(client, 'domains', vm);
        return client.get<{ keys: string[] }>(`/api/domains/${id}/ssh-keys/`, { ssh_user: user });
      });
      if (command.optsWithGlobals<GlobalOptions>().json) return printJson(found);
      for (const key of found.keys) print(clean(key));
    });
  for (const [action, path, done] of [
    ['add', 'ssh-keys', 'may log in now'],
    ['remove', 'ssh-keys/remove', 'may log in no more'],
  ] as const)
    withLayerOptions(keys.command(`${action} <vm> <user> <file>`))
      .description(`${action} the keys of a .pub file (- is stdin)`)
      .action(
        (...given: [vm: string, user: string, file: string, options: LayerOptions, command: Command]) => {
          const [vm, user, file, options, command] = given;
          const ssh_key = keysIn(file);
          return operate(command, vm, {
            path,
            body: () => ({ ssh_user: user, ssh_key, ...layerFields(options) }),
            tell: () =>
              `${user} ${done} with ${ssh_key.length === 1 ? 'this key' : `these ${ssh_key.length} keys`}`,
          });
        },
      );
}

function keysIn(file: string): string[] {
  const lines = readText(file)
    .split('\n')
    .map(line => line.trim())
    .filter(line => line !== '' && !line.startsWith('#'));
  if (lines.length === 0) throw new CliError(`There is no key in ${file}.`, ExitCode.usage);
  return lines;
}

function readText(file: string): string {
  try {
    return readFileSync(file === '-' ? 0 : file, 'utf8');
  } catch (error) {
    throw new CliError(`Cannot read ${file}: ${(error as Error).message}`, ExitCode.usage);
  }
}

interface DirectoryOptions {
  login: string;
  name?: string;
  ou?: string;
  domain?: string;
  restart: boolean;
}

interface JoinOptions extends DirectoryOptions {
  install: boolean;
}

function addDirectory(vms: Command): void {
  vms
    .command('join-domain <vm> <domain>')
    .description('join the guest to a directory domain; the password is asked for, or read from stdin')
    .requiredOption('--login <login>', 'who may join computers')
    .option('--name <name>', 'new computer name')
    .option('--ou <dn>', 'full DN of the organizational unit')
    .option('--no-install', 'do not install packages that the guest lacks')
    .option('--no-restart', 'do not restart the guest')
    .action((vm: string, domainname: string, options: JoinOptions, command: Command) =>
      operate(command, vm, {
        path: 'add-to-ad',
        body: async () => ({
          domainname,
          login: options.login,
          password: await directoryPassword(),
          ...(options.name === undefined ? {} : { newname: options.name }),
          ...(options.ou === undefined ? {} : { oupath: options.ou }),
          ...(options.install ? {} : { install_packages: false }),
          restart: options.restart,
        }),
        tell: result =>
          `joined ${result.domain} as ${result.computer_name}${restarted(result)}${installedText(result)}`,
      }),
    );
  vms
    .command('leave-domain <vm>')
    .description('let the guest leave its directory domain; the password is asked for, or read from stdin')
    .requiredOption('--login <login>', 'who may remove computers')
    .option('--domain <domain>', 'Linux: the domain; else the one it is in')
    .option('--no-restart', 'do not restart the guest')
    .action((vm: string, options: DirectoryOptions, command: Command) =>
      operate(command, vm, {
        path: 'rm-from-ad',
        body: async () => ({
          login: options.login,
          password: await directoryPassword(),
          ...(options.domain === undefined ? {} : { domainname: options.domain }),
          restart: options.restart,
        }),
        tell: result => `left ${result.domain}${restarted(result)}`,
      }),
    );
}

function directoryPassword(): Promise<string> {
  warnOfPlainHttp(loadSession().url);
  return askPassword();
}

interface SysprepOptions {
  mode?: string;
  action?: string;
  generalize: boolean;
  vm?: boolean;
  unattend?: string;
}

interface PrepareOptions extends LayerOptions {
  disk?: string;
  operations?: string;
}

function addPreparation(vms: Command): void {
  vms
    .command('sysprep <vm>')
    .description('run Sysprep in a running Windows guest')
    .option('--mode <mode>', 'oobe (default) or audit')
    .option('--action <action>', 'what it does at its end: shutdown (default), reboot or quit')
    .option('--no-generalize', 'keep what is particular to this computer')
    .option('--vm', 'with /mode:vm')
    .option('--unattend <file>', 'answer file')
    .action((vm: string, options: SysprepOptions, command: Command) =>
      operate(command, vm, {
        path: 'sysprep',
        body: () => ({
          ...(options.mode === undefined ? {} : { mode: options.mode }),
          ...(options.action === undefined ? {} : { action: options.action }),
          generalize: options.generalize,
          ...(options.vm ? { vm_mode: true } : {}),
          ...(options.unattend === undefined ? {} : { unattend: readText(options.unattend) }),
        }),
        tell: result => `Sysprep is done (${result.action})`,
      }),
    );
  vms
    .command('prepare-operations <vm>')
    .description('what prepare can do; an asterisk marks what it does by default')
    .action(async (vm: string, _options, command: Command) => {
      const { operations } = await withClient(async client => {
        const { id } = await resolve(client, 'domains', vm);
        return client.get<{ operations: Json[] }>(`/api/domains/${id}/prepare-operations/`);
      });
      if (command.optsWithGlobals<GlobalOptions>().json) return printJson(operations);
      printTable(
        ['NAME', 'DEFAULT', 'DESCRIPTION'],
        operations.map(({ name, default: isDefault, description }) => [
          name,
          isDefault ? '*' : '',
          description,
        ]),
      );
    });
  withLayerOptions(vms.command('prepare <vm>'))
    .description('prepare the disk of a Linux guest that is off to become a template')
    .option('--disk <id>', 'the disk with the system; else the first')
    .option('--operations <list>', 'names of virt-sysprep operations, with commas')
    .action((vm: string, options: PrepareOptions, command: Command) =>
      operate(command, vm, {
        path: 'prepare',
        body: () => ({
          ...(options.disk === undefined ? {} : { boot_disk: options.disk }),
          ...(options.operations === undefined ? {} : { operations: options.operations.split(',') }),
          ...layerFields(options),
        }),
        tell: result => `prepared: ${(result.operations as string[]).join(', ')}`,
      }),
    );
}

function addTools(vms: Command): void {
  const tools = vms.command('guest-tools').description('the guest tools image');
  for (const [action, done] of [
    ['attach', 'mounted as'],
    ['detach', 'unmounted from'],
  ] as const)
    tools
      .command(`${action} <vm>`)
      .description(`${action} the guest tools image`)
      .action((vm: string, _options, command: Command) =>
        operate(command, vm, {
          path: `${action}-guest-tools-iso`,
          body: () => ({}),
          tell: result => `guest tools ${done} ${result.target_dev}`,
        }),
      );
}

function restarted({ restarted: done }: Json): string {
  return done ? ', restarted' : '';
}

function installedText({ installed }: Json): string {
  return Array.isArray(installed) && installed.length > 0 ? `, installed ${installed.join(' ')}` : '';
}
