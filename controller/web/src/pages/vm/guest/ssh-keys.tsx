import { Button, Form } from '@patternfly/react-core';
import { useQuery } from '@tanstack/react-query';
import { useEffect, useState } from 'react';
import { AT_ONCE, answer, api, begun, type Domain, keyFor, newKey, type Task } from '../../../api/client.ts';
import { isOver, useTask } from '../../../live/tasks.ts';
import { Confirm } from '../../../parts/confirm.tsx';
import { LongTextField, TextField } from '../../../parts/fields.tsx';
import { Failure, Waiting } from '../../../parts/shown.tsx';
import { useToasts } from '../../../parts/toasts.tsx';
import { useWords } from '../../../texts/index.tsx';

const RUNNING = 3;

/** Who may log in to the guest by key: shown of one that runs, changed in one that is off, too. */
export function SshKeys({ domain }: { domain: Domain }) {
  const { texts } = useWords();
  const words = texts.guest;
  const { attempt, started } = useToasts();
  const [user, setUser] = useState('root');
  /** Whose keys are shown, whatever is written in the field since. */
  const [shown, setShown] = useState<string | undefined>();
  const [key, setKey] = useState('');
  const [leaving, setLeaving] = useState<{ of: string; line: string } | undefined>();
  const [last, setLast] = useState<Task | undefined>();
  const { id } = domain;
  // what was kept of an earlier opening may be old
  const [opening] = useState(newKey);
  const query = useQuery({
    // each asking is a call of the guest, and in the audit
    queryKey: ['shown', 'keys', id, shown, opening],
    queryFn: () =>
      answer(
        api.GET('/api/domains/{id}/ssh-keys/', {
          params: { path: { id }, query: { ssh_user: shown ?? '' } },
        }),
      ),
    enabled: shown !== undefined,
    retry: false,
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: 0,
  });
  const change = async (action: 'add' | 'remove', ssh_user: string, ssh_key: string) => {
    const path = action === 'add' ? 'ssh-keys' : 'ssh-keys/remove';
    const options = {
      params: { path: { id }, query: AT_ONCE },
      body: {
        ssh_user,
        ssh_key,
        idempotency_key: keyFor(`/api/domains/${id}/${path}/`, `${ssh_user} ${ssh_key}`),
      },
    };
    const call =
      action === 'add'
        ? api.POST('/api/domains/{id}/ssh-keys/', options)
        : api.POST('/api/domains/{id}/ssh-keys/remove/', options);
    const task = await begun(call);
    started(task);
    if (ssh_user === shown) setLast(task);
    if (action === 'add') setKey('');
  };
  return (
    <Form onSubmit={event => event.preventDefault()}>
      <TextField
        id="ssh-user"
        label={words.sshUser}
        isRequired
        maxLength={256}
        value={user}
        change={setUser}
      />
      <span>
        <Button
          variant="secondary"
          isDisabled={user === '' || domain.user_power_state !== RUNNING}
          onClick={() => (shown === user ? void query.refetch() : setShown(user))}
        >
          {words.showKeys}
        </Button>
      </span>
      {shown !== undefined && query.isFetching && <Waiting />}
      {query.isError && <Failure error={query.error} />}
      {last !== undefined && <OnceOver key={last.id} task={last} act={query.refetch} />}
      {query.data && shown !== undefined && (
        <ul className="vk-list" aria-label={words.keysOf(shown)}>
          {query.data.keys.length === 0 && <li>{words.noKeys}</li>}
          {query.data.keys.map(line => (
            <li key={line} className="vk-row">
              <code className="vk-name">{line}</code>
              <Button
                size="sm"
                variant="secondary"
                aria-label={words.removeKeyOf(line.slice(-40))}
                onClick={() => setLeaving({ of: shown, line })}
              >
                {words.removeKey}
              </Button>
            </li>
          ))}
        </ul>
      )}
      <LongTextField
        id="ssh-key"
        label={words.newKey}
        help={words.newKeyHelp}
        rows={3}
        value={key}
        change={setKey}
      />
      <span>
        <Button
          variant="secondary"
          isDisabled={key.trim() === '' || user === ''}
          onClick={() => attempt(() => change('add', user, key.trim()))}
        >
          {words.addKey}
        </Button>
      </span>
      {leaving !== undefined && (
        <Confirm
          title={words.removeKeyTitle(leaving.of)}
          text={leaving.line}
          submit={words.removeKey}
          act={() => change('remove', leaving.of, leaving.line)}
          close={() => setLeaving(undefined)}
        />
      )}
    </Form>
  );
}

/** The keys that are shown are asked for anew when one of them was added or removed. */
function OnceOver({ task: begunTask, act }: { task: Task; act: () => unknown }) {
  const isDone = isOver(useTask(begunTask));
  useEffect(() => {
    if (isDone) act();
  }, [isDone, act]);
  return null;
}
