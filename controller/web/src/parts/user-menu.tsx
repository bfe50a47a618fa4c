/** What is done with a user: by a menu, wherever the user is shown. */
import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { answer, api, type User } from '../api/client.ts';
import { useWords } from '../texts/index.tsx';
import { ActionMenu } from './actions.tsx';
import { Confirm, Dialog } from './confirm.tsx';
import { CheckField, DescriptionField, SelectField, TextField } from './fields.tsx';
import { changesOf, useOpened } from './opened.ts';
import { rightReason } from './reasons.ts';
import { useAsked } from './use-asked.ts';

export const ROLES = ['administrator', 'operator', 'auditor', 'backup_service'] as const;
export type Role = (typeof ROLES)[number];

interface Changes {
  role?: Role;
  enabled?: boolean;
  description?: string;
  password?: string;
  end_sessions?: boolean;
  end_tokens?: boolean;
}

function useChange() {
  const client = useQueryClient();
  return async (id: number, body: Changes) => {
    await answer(api.PUT('/api/users/{id}/', { params: { path: { id } }, body }));
    for (const key of ['users', 'user', 'logins', 'tokens'])
      await client.invalidateQueries({ queryKey: [key] });
  };
}

/** @param removed called once the user is gone, and was removed here */
export function UserMenu({ user, removed = () => {} }: { user: User; removed?: () => void }) {
  const { texts } = useWords();
  const words = texts.users;
  const change = useChange();
  const asked = useAsked();
  const client = useQueryClient();
  const [asks, setAsks] = useState<Asks | undefined>();
  const close = () => setAsks(undefined);
  const right = rightReason('user.manage', asked);
  const own = user.id === asked.session.user.id ? words.ownUser : undefined;
  const labels: Record<Asks, string> = {
    edit: words.change,
    password: words.setPassword,
    end: words.endSessions,
    remove: words.remove,
  };
  const action = (key: Asks, reason = right) => ({
    key,
    label: labels[key],
    reason,
    act: () => setAsks(key),
    isDanger: key === 'end' || key === 'remove',
  });
  const remove = async () => {
    await answer(api.POST('/api/users/{id}/remove/', { params: { path: { id: user.id } }, body: {} }));
    removed();
    for (const key of ['users', 'tokens']) await client.invalidateQueries({ queryKey: [key] });
  };
  return (
    <>
      <ActionMenu
        of={user.username}
        actions={[action('edit'), action('password'), action('end'), action('remove', right ?? own)]}
      />
      {asks === 'edit' && <EditUser user={user} close={close} />}
      {asks === 'password' && <SetPassword user={user} close={close} />}
      {asks === 'end' && (
        <Confirm
          title={words.endTitle(user.username)}
          text={words.endText}
          submit={words.endSessions}
          act={() => change(user.id, { end_sessions: true })}
          close={close}
        />
      )}
      {asks === 'remove' && (
        <Confirm
          title={words.removeTitle(user.username)}
          text={words.removeText}
          submit={words.remove}
          name={user.username}
          act={remove}
          close={close}
        />
      )}
    </>
  );
}

type Asks = 'edit' | 'password' | 'end' | 'remove';

function EditUser({ user: shown, close }: { user: User; close: () => void }) {
  const user = useOpened(shown);
  const { texts } = useWords();
  const words = texts.users;
  const change = useChange();
  const [role, setRole] = useState<Role>(user.role);
  const [enabled, setEnabled] = useState(user.enabled);
  const [description, setDescription] = useState(user.description);
  const act = () =>
    change(
      user.id,
      changesOf<Pick<User, 'role' | 'enabled' | 'description'>>(user, { role, enabled, description }),
    );
  return (
    <Dialog title={words.changeTitle(user.username)} submit={texts.common.save} act={act} close={close}>
      {fault => (
        <>
          <RoleField role={role} change={setRole} error={fault('role')} />
          <CheckField
            id="user-enabled"
            label={words.mayLogIn}
            help={words.changeHelp}
            isOn={enabled}
            change={setEnabled}
          />
          <DescriptionField of="user" value={description} fault={fault} change={setDescription} />
        </>
      )}
    </Dialog>
  );
}

function SetPassword({ user, close }: { user: User; close: () => void }) {
  const { texts } = useWords();
  const words = texts.users;
  const change = useChange();
  const [password, setPassword] = useState('');
  const [endsTokens, setEndsTokens] = useState(false);
  const act = () => change(user.id, { password, ...(endsTokens ? { end_tokens: true } : {}) });
  return (
    <Dialog
      title={words.passwordTitle(user.username)}
      submit={words.setPassword}
      isReady={password !== ''}
      act={act}
      close={close}
    >
      {fault => (
        <>
          <TextField
            id="user-password"
            type="password"
            autoComplete="new-password"
            label={words.newPassword}
            help={words.passwordHelp}
            isRequired
            value={password}
            error={fault('password')}
            change={setPassword}
          />
          <CheckField id="user-end-tokens" label={words.endTokens} isOn={endsTokens} change={setEndsTokens} />
        </>
      )}
    </Dialog>
  );
}

export function RoleField({
  role,
  change,
  error,
}: {
  role: Role;
  change: (role: Role) => void;
  error: string | undefined;
}) {
  const { texts } = useWords();
  return (
    <SelectField
      id="user-role"
      label={texts.users.role}
      help={texts.users.roleTexts[role]}
      options={ROLES.map(one => [one, texts.roles[one] ?? one] as const)}
      value={role}
      error={error}
      change={change}
    />
  );
}
