/** Logins, tokens and users. */

import { ROLES } from '@virtkeep/shared/permissions';
import Type from 'typebox';
import { MAX_PASSWORD_LENGTH } from '../../auth/passwords.ts';
import { STORY } from '../document/story.ts';
import {
  body,
  described,
  Name,
  NamedUser,
  nullable,
  oneOf,
  Permissions,
  record,
  Text,
  Time,
  text,
  texts,
  truth,
  UserNumber,
  Uuid,
} from './common.ts';

/** Lower case, so that no two users differ by case only. */
export const Username = Type.String({
  pattern: '^[a-z0-9][a-z0-9._@-]{0,63}$',
  description: 'lower case letters, digits and . _ @ -',
});
/** Length limits of hashing only; the rules for new passwords are in auth/passwords.ts. */
export const Password = Type.String({
  maxLength: MAX_PASSWORD_LENGTH,
  description: 'never stored as it is, never logged',
});
const Role = oneOf(ROLES, { description: 'what they may do' });
const EXAMPLE_TOKEN = 'eyJhbGciOiJIUzUxMiJ9.…';

export const LoginBody = body(
  { username: Type.String({ maxLength: 255, description: 'in any case' }), password: Password },
  { username: 'alice', password: 'correct horse battery' },
);

export const SessionSchema = record(
  'Session',
  {
    description: 'Who is logged in, and what they may do',
    example: {
      user: { id: 2, username: 'alice' },
      role: 'operator',
      permissions: ['domain.read', 'backup.create'],
      expires_on: STORY.changed,
      expires_in: 43_200,
      version: '0.1.0',
    },
  },
  {
    user: NamedUser,
    role: Role,
    permissions: texts('what the role allows'),
    expires_on: described(Time, 'until then it counts, or can be prolonged'),
    expires_in: Type.Integer({
      minimum: 0,
      description: 'seconds until then, by the clock of the controller',
    }),
    version: text('of the controller'),
  },
);

export const IssuedTokenSchema = record(
  'IssuedToken',
  { description: 'A login', example: { token: EXAMPLE_TOKEN, expires_on: STORY.changed } },
  {
    token: text('to be sent as `Authorization: jwt <token>`'),
    expires_on: described(Time, 'until then it counts, or can be refreshed'),
  },
);

export const UserSchema = record(
  'User',
  {
    description: 'Who may log in',
    example: {
      id: 2,
      username: 'alice',
      role: 'operator',
      enabled: true,
      description: '',
      created: STORY.created,
      modified: STORY.created,
      last_login: STORY.changed,
      permissions: ['update'],
    },
  },
  {
    id: UserNumber,
    username: text('by which they log in'),
    role: Role,
    enabled: truth('false: no login'),
    description: text('what people said of them'),
    created: described(Time, 'when they were added'),
    modified: described(Time, 'when they were changed last'),
    last_login: nullable(described(Time, 'null: never')),
    permissions: Permissions,
  },
);

export const UserSessionSchema = record(
  'UserSession',
  {
    description: 'A login, with all tokens refreshed from it',
    example: {
      id: STORY.token,
      user: { id: 2, username: 'alice' },
      created: STORY.created,
      last_used: STORY.changed,
      expires_on: STORY.until,
      address: '192.0.2.7',
      client: 'Firefox 145, Linux',
      current: true,
      permissions: ['remove'],
    },
  },
  {
    id: described(Uuid, 'the jti of its first token'),
    user: NamedUser,
    created: described(Time, 'when the password was given'),
    last_used: described(Time, 'to the minute'),
    expires_on: described(Time, 'when its newest token ends, if it is not refreshed'),
    address: text('from where; empty: not known'),
    client: text('the browser or program, shortened; empty: not known'),
    current: truth('the one by which you ask'),
    permissions: Permissions,
  },
);

const token = {
  id: described(Uuid, 'its jti'),
  name: text('what it is for'),
  user: NamedUser,
  created: described(Time, 'when it was issued'),
  expires_on: described(Time, 'until then it counts'),
  last_used: nullable(described(Time, 'null: never')),
  permissions: Permissions,
};

const exampleToken = {
  id: STORY.token,
  name: 'nightly script',
  user: { id: 2, username: 'alice' },
  created: STORY.created,
  expires_on: STORY.until,
  last_used: null,
  permissions: ['remove'],
};

export const TokenSchema = record(
  'Token',
  { description: 'A long-lived integration token', example: exampleToken },
  token,
);
export const NewTokenSchema = record(
  'NewToken',
  {
    description: 'An integration token, as it is issued',
    example: { ...exampleToken, token: EXAMPLE_TOKEN },
  },
  { ...token, token: text('shown this once') },
);

export const UserBody = body(
  {
    username: Username,
    password: Password,
    role: Role,
    description: described(Type.Optional(Text), 'free text'),
  },
  { username: 'alice', password: 'correct horse battery', role: 'operator' },
);

export const UserPatchBody = body(
  {
    role: Type.Optional(Role),
    enabled: Type.Optional(truth('false: no login')),
    description: described(Type.Optional(Text), 'free text'),
    password: described(Type.Optional(Password), 'the new one'),
    old_password: described(Type.Optional(Password), 'your present one; needed for your own new one'),
    end_sessions: Type.Optional(truth('true: ends all logins of before')),
    end_tokens: Type.Optional(truth('true: ends all integration tokens, too')),
  },
  { role: 'auditor', end_sessions: true },
);

export function tokenBody(maxDays: number) {
  return body(
    {
      name: described(Name, 'what it is for'),
      password: described(Password, 'your own, given again'),
      days: Type.Optional(Type.Integer({ minimum: 1, maximum: maxDays, description: 'lifetime' })),
      user: described(Type.Optional(UserNumber), 'whose it is; without it your own'),
    },
    { name: 'nightly script', password: 'correct horse battery' },
  );
}
