/** Who may log in, and as what. */
import { Content, Label } from '@patternfly/react-core';
import { Table, Tbody, Td, Th, Thead, Tr } from '@patternfly/react-table';
import { keepPreviousData, useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { Link, useParams } from 'react-router';
import { answer, api, keyFor, list, SELDOM, type User } from '../api/client.ts';
import { ActionButton } from '../parts/actions.tsx';
import { Dialog } from '../parts/confirm.tsx';
import { DescriptionField, TextField } from '../parts/fields.tsx';
import { ListBar, useList } from '../parts/list.tsx';
import { ViewPage } from '../parts/page.tsx';
import { PageTabs } from '../parts/page-tabs.tsx';
import { rightReason } from '../parts/reasons.ts';
import { Shown } from '../parts/shown.tsx';
import { TokenList } from '../parts/tokens.tsx';
import { useAsked } from '../parts/use-asked.ts';
import { ROLES, type Role, RoleField, UserMenu } from '../parts/user-menu.tsx';
import { useWords } from '../texts/index.tsx';

export default function UsersPage() {
  const { texts } = useWords();
  const words = texts.users;
  const { tab } = useParams();
  const reason = rightReason('user.manage', useAsked());
  const [isMaking, setMaking] = useState(false);
  return (
    <ViewPage
      title={words.title}
      actions={
        <ActionButton
          variant="primary"
          action={{ key: 'make', label: words.add, reason, act: () => setMaking(true) }}
        />
      }
    >
      {isMaking && <AddUser close={() => setMaking(false)} />}
      <PageTabs
        label={words.title}
        at="/users"
        active={tab}
        tabs={[
          { key: 'list', title: words.title, content: () => <UserList /> },
          { key: 'tokens', title: texts.tokens.title, content: () => <TokenList /> },
          { key: 'roles', title: words.roles, content: () => <RoleList /> },
        ]}
      />
    </ViewPage>
  );
}

function UserList() {
  const state = useList();
  const query = useQuery({
    queryKey: ['users', state.query],
    queryFn: () => list<User>(api.GET('/api/users/', { params: { query: state.query } })),
    placeholderData: keepPreviousData,
    ...SELDOM,
  });
  return (
    <>
      <ListBar list={state} count={query.data?.count} />
      <Shown query={query}>{({ results }) => <UserTable users={results} />}</Shown>
    </>
  );
}

function UserTable({ users }: { users: readonly User[] }) {
  const { texts, format } = useWords();
  const words = texts.users;
  return (
    <Table aria-label={words.title} variant="compact">
      <Thead>
        <Tr>
          <Th modifier="wrap">{words.username}</Th>
          <Th modifier="wrap">{words.role}</Th>
          <Th modifier="wrap">{texts.common.status}</Th>
          <Th modifier="wrap">{words.lastLogin}</Th>
          <Th screenReaderText={texts.list.actions} />
        </Tr>
      </Thead>
      <Tbody>
        {users.map(user => (
          <Tr key={user.id}>
            <Td dataLabel={words.username} className="vk-name">
              <Link to={`/users/one/${user.id}`}>{user.username}</Link>
              {user.description !== '' && <div className="vk-small">{user.description}</div>}
            </Td>
            <Td dataLabel={words.role}>{texts.roles[user.role] ?? user.role}</Td>
            <Td dataLabel={texts.common.status}>
              <Label isCompact variant="outline" {...(user.enabled ? { status: 'success' } : {})}>
                {user.enabled ? words.enabled : words.disabled}
              </Label>
            </Td>
            <Td dataLabel={words.lastLogin}>{format.age(user.last_login)}</Td>
            <Td isActionCell>
              <UserMenu user={user} />
            </Td>
          </Tr>
        ))}
      </Tbody>
    </Table>
  );
}

function AddUser({ close }: { close: () => void }) {
  const { texts } = useWords();
  const words = texts.users;
  const client = useQueryClient();
  const [username, setUsername] = useState('');
  const [password, setPassword] = useState('');
  const [role, setRole] = useState<Role>('operator');
  const [description, setDescription] = useState('');
  const act = async () => {
    const body = { username, password, role, description, idempotency_key: keyFor('/api/users/', username) };
    await answer(api.POST('/api/users/', { body }));
    await client.invalidateQueries({ queryKey: ['users'] });
  };
  return (
    <Dialog
      title={words.add}
      submit={words.add}
      isReady={username !== '' && password !== ''}
      act={act}
      close={close}
    >
      {fault => (
        <>
          <TextField
            id="user-name"
            label={words.username}
            help={words.usernameHelp}
            isRequired
            maxLength={64}
            value={username}
            error={fault('username')}
            change={setUsername}
          />
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
          <RoleField role={role} change={setRole} error={fault('role')} />
          <DescriptionField of="user" value={description} fault={fault} change={setDescription} />
        </>
      )}
    </Dialog>
  );
}

function RoleList() {
  const { texts } = useWords();
  return (
    <dl className="vk-block">
      {ROLES.map(role => (
        <div key={role} className="vk-block">
          <Content component="dt">{texts.roles[role]}</Content>
          <Content component="dd">{texts.users.roleTexts[role]}</Content>
        </div>
      ))}
    </dl>
  );
}
