/** Logins, tokens and users. */

import { ROLES } from '@virtkeep/shared/permissions';
import Type from 'typebox';
import { MAX_PASSWORD_LENGTH } from '../../auth/passwords.ts';
import {
  Name,
  nullable,
  oneOf,
  Permissions,
  record,
  Text,
  Time,
  ToldUser,
  UserNumber,
  Uuid,
} from './common.ts';

/** Lower case, so that no two users differ by case only. */
export const Username = Type.String({ pattern: '^[a-z0-9][a-z0-9._@-]{0,63}$' });
/** Length limits of hashing only; the rules for new passwords are in auth/passwords.ts. */
export const Password = Type.String({ maxLength: MAX_PASSWORD_LENGTH });

export const IssuedTokenSchema = record('IssuedToken', { token: Type.String(), expires_on: Time });

export const UserSchema = record('User', {
  id: UserNumber,
  username: Type.String(),
  role: oneOf(ROLES),
  enabled: Type.Boolean(),
  description: Type.String(),
  created: Time,
  modified: Time,
  last_login: nullable(Time),
  permissions: Permissions,
});

const token = {
  id: Uuid,
  name: Type.String(),
  user: ToldUser,
  created: Time,
  expires_on: Time,
  last_used: nullable(Time),
  permissions: Permissions,
};

export const TokenSchema = record('Token', token);
export const NewTokenSchema = record('NewToken', {
  ...token,
  token: Type.String({ description: 'shown this once' }),
});

export const UserBody = Type.Object(
  {
    username: Username,
    password: Password,
    role: oneOf(ROLES),
    description: Type.Optional(Text),
  },
  { additionalProperties: false },
);

export const UserPatchBody = Type.Object(
  {
    role: Type.Optional(oneOf(ROLES)),
    enabled: Type.Optional(Type.Boolean()),
    description: Type.Optional(Text),
    password: Type.Optional(Password),
    old_password: Type.Optional(Password),
    end_sessions: Type.Optional(Type.Boolean({ description: 'true: ends all logins of before' })),
    end_tokens: Type.Optional(Type.Boolean({ description: 'true: ends all integration tokens, too' })),
  },
  { additionalProperties: false },
);

export function tokenBody(maxDays: number) {
  return Type.Object(
    {
      name: Name,
      password: Type.String({ maxLength: MAX_PASSWORD_LENGTH, description: 'your own, given again' }),
      days: Type.Optional(Type.Integer({ minimum: 1, maximum: maxDays, description: 'lifetime' })),
      user: Type.Optional(UserNumber),
    },
    { additionalProperties: false },
  );
}
