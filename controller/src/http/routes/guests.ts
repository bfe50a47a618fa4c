/** The agent of a guest (specification 4.4): its commands, and what it tells. Answered at once, whatever `async` says. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { FastifyReply } from 'fastify';
import Type from 'typebox';
import { DEFAULT_TIMEOUT_S } from '../../services/guests/guests.ts';
import type { Services } from '../../services/services.ts';
import type { App, RouteModule } from '../app.ts';
import { principalOf } from '../app.ts';
import { DOMAIN_PLACE, GUEST_CALL, NODE_CALL } from '../node-errors.ts';
import { AsyncQuery, IdParams, oneOf, ref } from '../schemas/common.ts';
import {
  AvailableCommandsSchema,
  COMMAND_PATTERN,
  GuestCommandAnswer,
  GuestCommandBody,
  GuestInfoSchema,
  PreparationsSchema,
  SshKeysSchema,
  SshUser,
} from '../schemas/guest.ts';

const tags = ['guests'];
const COMMAND_NAME = new RegExp(COMMAND_PATTERN);
/** `?refresh` alone says yes. */
const Flag = oneOf(['', 'true', 'false', '1', '0'] as const, { description: 'ask the guest now' });

const COMMAND_ERRORS = [
  ...GUEST_CALL,
  'guest_argument_invalid',
  'guest_process_unknown',
  'guest_thaw_failed',
  'outcome_unknown',
] as const;

export const guestRoutes: RouteModule = (app, services) => {
  commandRoutes(app, services);
  readRoutes(app, services);
  preparationsRoute(app, services);
};

function commandRoutes(app: App, services: Services): void {
  app.get(
    '/api/domains/:id/available-guest-cmds/',
    {
      config: { access: 'guest.read', auditedRead: () => true, errors: GUEST_CALL },
      schema: {
        tags,
        summary: 'The commands that the agent of this guest offers and has enabled',
        params: IdParams,
        querystring: AsyncQuery,
        response: { 200: ref(AvailableCommandsSchema) },
      },
    },
    async (request, reply) => {
      const names = await services.guests.commands(request.params.id, hungUp(reply));
      const spelled = services.config.api.emulator_name === 'qemu';
      return { emu_available_cmds: names, ...(spelled ? { qemu_available_cmds: names } : {}) };
    },
  );

  app.post(
    '/api/domains/:id/guest-command/',
    {
      // the class of the command is checked with the body; an answer may hold what a file or a program does
      config: {
        access: 'guest.read',
        secretAnswer: true,
        auditDetail: commandForAudit,
        exactIntegers: true,
        errors: COMMAND_ERRORS,
      },
      // before validation: emu_cmd is required, and either name will do
      preValidation: async ({ body }) => nameCommand(body),
      schema: {
        tags,
        summary: 'Run a command of the guest agent and answer its result under its name',
        params: IdParams,
        querystring: AsyncQuery,
        body: GuestCommandBody,
        response: { 200: GuestCommandAnswer },
      },
    },
    async (request, reply) => {
      const { id } = request.params;
      services.guests.requireDomain(id);
      const { fargs: args = {}, timeout = DEFAULT_TIMEOUT_S } = request.body;
      const command = commandOf(request.body);
      const call = { command, args, timeout };
      const user = principalOf(request);
      const result = await services.guests.run(id, call, user, hungUp(reply));
      return Object.fromEntries([[command, result]]);
    },
  );
}

function readRoutes(app: App, services: Services): void {
  app.get(
    '/api/domains/:id/guest-info/',
    {
      config: {
        access: 'domain.read',
        auditedRead: isRefresh,
        errors: [...GUEST_CALL, 'permission_denied'],
      },
      schema: {
        tags,
        summary: 'What the guest told of itself last; refresh: it is asked now',
        params: IdParams,
        querystring: Type.Object(
          { ...AsyncQuery.properties, refresh: Type.Optional(Flag) },
          { additionalProperties: false },
        ),
        response: { 200: ref(GuestInfoSchema) },
      },
    },
    async (request, reply) => {
      const { params, query } = request;
      return services.guests.info(params.id, isRefresh(query), principalOf(request), hungUp(reply));
    },
  );

  app.get(
    '/api/domains/:id/ssh-keys/',
    {
      config: { access: 'guest.execute', auditedRead: () => true, errors: GUEST_CALL },
      schema: {
        tags,
        summary: 'The SSH keys that may log in as a user of the guest',
        params: IdParams,
        querystring: Type.Object(
          { ...AsyncQuery.properties, ssh_user: Type.Optional(Type.String({ ...SshUser, default: 'root' })) },
          { additionalProperties: false },
        ),
        response: { 200: ref(SshKeysSchema) },
      },
    },
    async (request, reply) => {
      const { ssh_user = 'root' } = request.query;
      return { ssh_user, keys: await services.guests.sshKeys(request.params.id, ssh_user, hungUp(reply)) };
    },
  );
}

function preparationsRoute(app: App, services: Services): void {
  app.get(
    '/api/domains/:id/prepare-operations/',
    {
      config: { access: 'guest.execute', errors: [...NODE_CALL, ...DOMAIN_PLACE, 'guestfs_failed'] },
      schema: {
        tags,
        summary: 'The operations that the offline preparation of a Linux guest can do',
        params: IdParams,
        querystring: AsyncQuery,
        response: { 200: ref(PreparationsSchema) },
      },
    },
    async (request, reply) => ({
      operations: await services.guests.preparations(request.params.id, hungUp(reply)),
    }),
  );
}

function isRefresh({ refresh }: { refresh?: unknown }): boolean {
  return refresh !== undefined && refresh !== '0' && refresh !== 'false';
}

/** Puts a command that was given as `qemu_cmd` where it belongs. */
function nameCommand(given: unknown): void {
  if (typeof given !== 'object' || given === null) return;
  const body = given as { emu_cmd?: unknown; qemu_cmd?: unknown };
  if (body.emu_cmd === undefined && body.qemu_cmd !== undefined) body.emu_cmd = body.qemu_cmd;
}

/** @throws invalid_field */
function commandOf({ emu_cmd, qemu_cmd }: { emu_cmd: string; qemu_cmd?: string }): string {
  if (qemu_cmd === undefined || qemu_cmd === emu_cmd) return emu_cmd;
  const reason = 'names another command than emu_cmd; send one of them';
  throw new VirtkeepError('invalid_field', { field: 'qemu_cmd', reason });
}

/** For the audit, of whatever was sent. */
function commandForAudit({ emu_cmd, qemu_cmd }: Record<string, unknown>): string {
  const command = emu_cmd ?? qemu_cmd;
  return typeof command === 'string' && COMMAND_NAME.test(command) ? command : '';
}

/** Fires when the client has left: nobody waits for the guest any more. */
function hungUp(reply: FastifyReply): AbortSignal {
  const left = new AbortController();
  reply.raw.once('close', () => left.abort());
  return left.signal;
}
