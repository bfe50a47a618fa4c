/** Operations inside of guests (specification 4.6), as tasks. What they are given may be secret and is stored nowhere. */
import type { ErrorKey } from '@virtkeep/shared/errors';
import Type, { type Static, type TObject, type TProperties, type TSchema } from 'typebox';
import type { Principal } from '../../auth/principal.ts';
import type { Services } from '../../services/services.ts';
import type { TaskState } from '../../services/tasks/tasks.ts';
import { LONG_ACTION, runTask } from '../actions.ts';
import type { App, RouteModule } from '../app.ts';
import { principalOf } from '../app.ts';
import { DISK_WORK, DOMAIN_WORK, GUEST_CALL, POOL_WRITE } from '../node-errors.ts';
import { AllowNetworkLayers, AsyncQuery, body, GivenUuid, IdParams, oneOf, ref } from '../schemas/common.ts';
import {
  ChangedSshKeysSchema,
  DirectoryJoinedSchema,
  DirectoryLeftSchema,
  GuestPreparedSchema,
  GuestToolsSchema,
  HostnameSetSchema,
  RestartFlag,
  SshUser,
  SysprepRunSchema,
} from '../schemas/guest.ts';
import { taskAnswers } from '../schemas/task.ts';

const HostName = Type.String({ minLength: 1, maxLength: 253 });
const Login = Type.String({ minLength: 1, maxLength: 256, description: 'who may do this in the directory' });
const Password = Type.String({ minLength: 1, maxLength: 256, description: 'never stored, never logged' });
const SshKey = Type.String({ minLength: 1, maxLength: 16_384 });

const HOSTNAME = {
  hostname: Type.Optional(Type.String({ ...HostName, description: "the VM's name when absent" })),
  restart: Type.Optional(RestartFlag),
  allow_network_layers: Type.Optional(AllowNetworkLayers),
};
const JOIN = {
  domainname: Type.String({ ...HostName, description: 'DNS name of the directory' }),
  login: Login,
  password: Password,
  newname: Type.Optional(Type.String({ ...HostName, description: 'new computer name' })),
  oupath: Type.Optional(
    Type.String({ minLength: 1, maxLength: 2048, description: 'full DN of the organizational unit' }),
  ),
  restart: Type.Optional(RestartFlag),
  install_packages: Type.Optional(
    Type.Boolean({
      description:
        'Linux: install the packages that joining needs and the guest lacks, by its own package manager. false: the call fails with guest_packages_missing, which names them. When absent they are installed where the package manager gets them from its sources, and are told as missing elsewhere.',
    }),
  ),
};
const LEAVE = {
  login: Login,
  password: Password,
  domainname: Type.Optional(
    Type.String({ ...HostName, description: 'Linux only; the one it is in when absent' }),
  ),
  restart: Type.Optional(RestartFlag),
};
const KEYS = {
  ssh_user: SshUser,
  ssh_key: Type.Unsafe<string | string[]>({
    anyOf: [SshKey, Type.Array(SshKey, { minItems: 1, maxItems: 64 })],
    description: 'a line as in a .pub file, or several',
  }),
  allow_network_layers: Type.Optional(AllowNetworkLayers),
};
const SYSPREP = {
  mode: Type.Optional(oneOf(['oobe', 'audit'] as const, { description: 'what it starts in' })),
  action: Type.Optional(
    oneOf(['shutdown', 'reboot', 'quit'] as const, { description: 'what the guest does after it' }),
  ),
  generalize: Type.Optional(Type.Boolean({ default: true, description: 'make it fit other machines' })),
  vm_mode: Type.Optional(Type.Boolean({ default: false, description: 'it stays on the same hypervisor' })),
  unattend: Type.Optional(Type.String({ maxLength: 1_000_000, description: 'text of an answer file' })),
};
const PREPARE = {
  boot_disk: Type.Optional(
    Type.String({ ...GivenUuid, description: 'the disk with the system; else the first' }),
  ),
  operations: Type.Optional(
    Type.Array(Type.String({ minLength: 1, maxLength: 64 }), {
      maxItems: 100,
      description: 'of virt-sysprep; its defaults when absent',
    }),
  ),
  allow_network_layers: Type.Optional(AllowNetworkLayers),
};

const IN_GUEST_ERRORS = [
  ...GUEST_CALL,
  ...DOMAIN_WORK,
  'guest_packages_missing',
  'guest_argument_invalid',
  'guestfs_failed',
  'template_has_clones',
  'image_in_use',
  'image_use_unknown',
] as const;
const DIRECTORY_ERRORS = [
  'directory_login_failed',
  'directory_not_found',
  'layers_on_network',
  'guest_install_failed',
] as const;
/** Of what also works on the disk of a VM that is off. */
const OFFLINE_ERRORS = [...DISK_WORK, ...POOL_WRITE, 'layers_on_network', 'snapshot_in_use'] as const;
const TOOLS_ERRORS = ['guest_tools_unavailable', 'no_free_slot'] as const;

export const guestOperationRoutes: RouteModule = (app, services) => {
  const { guestOperations } = services;
  const add = <P extends TProperties>(path: string, action: GuestAction<P>) =>
    operationRoute(app, services, path, action);
  add('set-hostname', {
    summary: 'Set the host name of a guest, running or (Linux) off',
    fields: HOSTNAME,
    example: { hostname: 'web-1' },
    answer: HostnameSetSchema,
    errors: OFFLINE_ERRORS,
    start: (...args) => guestOperations.setHostname(...args),
  });
  add('add-to-ad', {
    summary: 'Join a guest to a directory domain',
    fields: JOIN,
    example: { domainname: 'corp.example.org', login: 'joiner', password: 'correct horse battery' },
    answer: DirectoryJoinedSchema,
    errors: DIRECTORY_ERRORS,
    start: (...args) => guestOperations.joinDirectory(...args),
  });
  add('rm-from-ad', {
    summary: 'Let a guest leave its directory domain',
    fields: LEAVE,
    example: { login: 'joiner', password: 'correct horse battery' },
    answer: DirectoryLeftSchema,
    errors: DIRECTORY_ERRORS,
    start: (...args) => guestOperations.leaveDirectory(...args),
  });
  add('ssh-keys', {
    summary: 'Add SSH keys to a user of a Linux guest, running or off',
    fields: KEYS,
    example: { ssh_user: 'root', ssh_key: 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBvJ…0 alice@example.org' },
    answer: ChangedSshKeysSchema,
    errors: [...OFFLINE_ERRORS, 'ssh_key_invalid'],
    start: (id, body, ...by) => guestOperations.changeSshKeys(id, { ...body, change: 'add' }, ...by),
  });
  add('ssh-keys/remove', {
    summary: 'Remove SSH keys from a user of a Linux guest, running or off',
    fields: KEYS,
    example: { ssh_user: 'root', ssh_key: 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBvJ…0 alice@example.org' },
    answer: ChangedSshKeysSchema,
    errors: [...OFFLINE_ERRORS, 'ssh_key_invalid'],
    start: (id, body, ...by) => guestOperations.changeSshKeys(id, { ...body, change: 'remove' }, ...by),
  });
  add('sysprep', {
    summary: 'Run Sysprep in a running Windows guest',
    fields: SYSPREP,
    example: { mode: 'oobe', action: 'shutdown' },
    answer: SysprepRunSchema,
    start: (...args) => guestOperations.sysprep(...args),
  });
  add('prepare', {
    summary: 'Prepare the disk of a Linux guest that is off to become a template',
    fields: PREPARE,
    example: { operations: ['machine-id', 'ssh-hostkeys'] },
    answer: GuestPreparedSchema,
    errors: OFFLINE_ERRORS,
    start: (...args) => guestOperations.prepare(...args),
  });
  for (const change of ['attach', 'detach'] as const)
    add(`${change}-guest-tools-iso`, {
      summary: change === 'attach' ? 'Mount the guest tools image' : 'Unmount the guest tools image',
      fields: {},
      example: {},
      errors: TOOLS_ERRORS,
      answer: GuestToolsSchema,
      start: (id, _body, user, taskId) => guestOperations.tools(change, id, user, taskId),
    });
};

interface GuestAction<P extends TProperties> {
  summary: string;
  fields: P;
  example: Static<TObject<NoInfer<P>>>;
  /** Beside those of every operation in a guest. */
  errors?: readonly ErrorKey[];
  answer: TSchema & { $id?: string };
  start: (id: string, body: Static<TObject<P>>, user: Principal, taskId: string) => Promise<TaskState>;
}

function operationRoute<P extends TProperties>(
  app: App,
  services: Services,
  path: string,
  { summary, fields, example, errors = [], answer, start }: GuestAction<P>,
): void {
  app.post(
    `/api/domains/:id/${path}/`,
    {
      config: { access: 'guest.execute', ...LONG_ACTION, errors: [...IN_GUEST_ERRORS, ...errors] },
      schema: {
        tags: ['guests'],
        summary,
        params: IdParams,
        querystring: AsyncQuery,
        body: body<P>(fields, example),
        response: taskAnswers(ref(answer)),
      },
    },
    (request, reply) => {
      const { id } = request.params as { id: string };
      return runTask(services, request, reply, {
        start: taskId => start(id, request.body as never, principalOf(request), taskId),
      });
    },
  );
}
