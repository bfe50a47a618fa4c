import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { AT_ONCE, answer, api, begun, type Domain, keyFor, newKey, type Task } from '../../../api/client.ts';
import { ActionButton } from '../../../parts/actions.tsx';
import { Dialog } from '../../../parts/confirm.tsx';
import { CheckField, Checks, SelectField, TextField } from '../../../parts/fields.tsx';
import { domainReason } from '../../../parts/reasons.ts';
import { Shown } from '../../../parts/shown.tsx';
import { useToasts } from '../../../parts/toasts.tsx';
import { useAsked } from '../../../parts/use-asked.ts';
import { useWords } from '../../../texts/index.tsx';

type Asks = 'hostname' | 'join' | 'leave' | 'sysprep' | 'prepare';
const ASKS: readonly Asks[] = ['hostname', 'join', 'leave', 'sysprep', 'prepare'];
const OFF = 1;

/** Operations inside of the guest, each of which is a task. */
export function Operations({ domain }: { domain: Domain }) {
  const { texts } = useWords();
  const words = texts.guest;
  const { attempt, started } = useToasts();
  const [asks, setAsks] = useState<Asks | undefined>();
  const allowed = domainReason('guest_operation', domain, useAsked());
  const isOff = domain.user_power_state === OFF;
  const reason = (action: Asks) => {
    if (allowed !== undefined) return allowed;
    if (action === 'prepare') return isOff ? undefined : texts.reasons.running;
    return isOff && action !== 'hostname' ? texts.reasons.off : undefined;
  };
  const tools = async (change: 'attach' | 'detach') => {
    const path = `/api/domains/{id}/${change}-guest-tools-iso/` as const;
    const key = keyFor(`/api/domains/${domain.id}/${change}-guest-tools-iso/`);
    const params = { path: { id: domain.id }, query: AT_ONCE };
    started(await begun(api.POST(path, { params, body: { idempotency_key: key } })));
  };
  const close = () => setAsks(undefined);
  return (
    <span className="vk-row">
      {ASKS.map(action => (
        <ActionButton
          key={action}
          action={{
            key: action,
            label: words.titles[action],
            reason: reason(action),
            act: () => setAsks(action),
          }}
        />
      ))}
      {(['attach', 'detach'] as const).map(change => (
        <ActionButton
          key={change}
          action={{
            key: change,
            label: words.tools[change],
            reason: allowed,
            act: () => attempt(() => tools(change)),
          }}
        />
      ))}
      {asks === 'hostname' && <SetHostname domain={domain} close={close} />}
      {asks === 'join' && <Join domain={domain} close={close} />}
      {asks === 'leave' && <Leave domain={domain} close={close} />}
      {asks === 'sysprep' && <Sysprep domain={domain} close={close} />}
      {asks === 'prepare' && <Prepare domain={domain} close={close} />}
    </span>
  );
}

interface AskProps {
  domain: Domain;
  close: () => void;
}

/** Starts it with a key of its own, so that it may be sent again. */
function useStart(start: (idempotency_key: string) => Promise<Task>) {
  const { started } = useToasts();
  const [key] = useState(newKey);
  return async () => started(await start(key));
}

const at = (domain: Domain) => ({ path: { id: domain.id }, query: AT_ONCE });
/** What is not written is not sent. */
const given = <T extends Record<string, string>>(fields: T): Partial<T> =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== '')) as Partial<T>;

function RestartField({ isOn, change }: { isOn: boolean; change: (isOn: boolean) => void }) {
  const { texts } = useWords();
  return <CheckField id="guest-restart" label={texts.guest.restart} isOn={isOn} change={change} />;
}

function SetHostname({ domain, close }: AskProps) {
  const { texts } = useWords();
  const words = texts.guest;
  const [hostname, setHostname] = useState(domain.guest_utils.hostname ?? '');
  const [restart, setRestart] = useState(true);
  const act = useStart(idempotency_key =>
    begun(
      api.POST('/api/domains/{id}/set-hostname/', {
        params: at(domain),
        body: { ...given({ hostname }), restart, idempotency_key },
      }),
    ),
  );
  return (
    <Dialog title={words.titles.hostname} submit={words.titles.hostname} act={act} close={close}>
      {fault => (
        <>
          <TextField
            id="guest-hostname"
            label={words.hostname}
            help={words.hostnameHelp(domain.verbose_name)}
            maxLength={253}
            value={hostname}
            error={fault('hostname')}
            change={setHostname}
          />
          <RestartField isOn={restart} change={setRestart} />
        </>
      )}
    </Dialog>
  );
}

function Join({ domain, close }: AskProps) {
  const { texts } = useWords();
  const words = texts.guest;
  const [fields, setFields] = useState({ domainname: '', login: '', password: '', newname: '', oupath: '' });
  const [installs, setInstalls] = useState(true);
  const [restart, setRestart] = useState(true);
  const { domainname, login, password, ...optional } = fields;
  const act = useStart(idempotency_key =>
    begun(
      api.POST('/api/domains/{id}/add-to-ad/', {
        params: at(domain),
        body: {
          domainname,
          login,
          password,
          ...given(optional),
          ...(installs ? {} : { install_packages: false }),
          restart,
          idempotency_key,
        },
      }),
    ),
  );
  const labels = {
    domainname: words.directory,
    login: words.login,
    password: texts.login.password,
    newname: words.newName,
    oupath: words.unit,
  };
  const needed: readonly string[] = ['domainname', 'login', 'password'];
  return (
    <Dialog
      title={words.titles.join}
      submit={words.titles.join}
      isReady={domainname !== '' && login !== '' && password !== ''}
      act={act}
      close={close}
    >
      {fault => (
        <>
          {(Object.keys(labels) as (keyof typeof labels)[]).map(field => (
            <TextField
              key={field}
              id={`join-${field}`}
              type={field === 'password' ? 'password' : 'text'}
              autoComplete={field === 'password' ? 'new-password' : 'off'}
              label={labels[field]}
              isRequired={needed.includes(field)}
              value={fields[field]}
              error={fault(field)}
              change={value => setFields(before => ({ ...before, [field]: value }))}
            />
          ))}
          <CheckField id="join-install" label={words.installs} isOn={installs} change={setInstalls} />
          <RestartField isOn={restart} change={setRestart} />
        </>
      )}
    </Dialog>
  );
}

function Leave({ domain, close }: AskProps) {
  const { texts } = useWords();
  const words = texts.guest;
  const [login, setLogin] = useState('');
  const [password, setPassword] = useState('');
  const [domainname, setDirectory] = useState('');
  const [restart, setRestart] = useState(true);
  const act = useStart(idempotency_key =>
    begun(
      api.POST('/api/domains/{id}/rm-from-ad/', {
        params: at(domain),
        body: { login, password, ...given({ domainname }), restart, idempotency_key },
      }),
    ),
  );
  return (
    <Dialog
      title={words.titles.leave}
      submit={words.titles.leave}
      isDanger
      isReady={login !== '' && password !== ''}
      act={act}
      close={close}
    >
      {fault => (
        <>
          <TextField
            id="leave-login"
            label={words.login}
            isRequired
            value={login}
            error={fault('login')}
            change={setLogin}
          />
          <TextField
            id="leave-password"
            type="password"
            autoComplete="new-password"
            label={texts.login.password}
            isRequired
            value={password}
            error={fault('password')}
            change={setPassword}
          />
          <TextField
            id="leave-directory"
            label={words.directory}
            help={words.leaveHelp}
            value={domainname}
            error={fault('domainname')}
            change={setDirectory}
          />
          <RestartField isOn={restart} change={setRestart} />
        </>
      )}
    </Dialog>
  );
}

function Sysprep({ domain, close }: AskProps) {
  const { texts } = useWords();
  const words = texts.guest;
  const [mode, setMode] = useState<'oobe' | 'audit'>('oobe');
  const [action, setAction] = useState<'shutdown' | 'reboot' | 'quit'>('shutdown');
  const [generalize, setGeneralize] = useState(true);
  const act = useStart(idempotency_key =>
    begun(
      api.POST('/api/domains/{id}/sysprep/', {
        params: at(domain),
        body: { mode, action, generalize, idempotency_key },
      }),
    ),
  );
  return (
    <Dialog title={words.titles.sysprep} submit={words.titles.sysprep} isDanger act={act} close={close}>
      <p>{words.sysprepText}</p>
      <SelectField
        id="sysprep-mode"
        label={words.startsIn}
        options={[
          ['oobe', 'OOBE'],
          ['audit', 'audit'],
        ]}
        value={mode}
        change={setMode}
      />
      <SelectField
        id="sysprep-action"
        label={words.afterwards}
        options={(['shutdown', 'reboot', 'quit'] as const).map(one => [one, words.after[one]] as const)}
        value={action}
        change={setAction}
      />
      <CheckField id="sysprep-generalize" label={words.generalize} isOn={generalize} change={setGeneralize} />
    </Dialog>
  );
}

/** Of a Linux guest that is off; the tools of its node say what can be done. */
function Prepare({ domain, close }: AskProps) {
  const { texts } = useWords();
  const words = texts.guest;
  const query = useQuery({
    queryKey: ['shown', 'preparations', domain.id],
    queryFn: () =>
      answer(api.GET('/api/domains/{id}/prepare-operations/', { params: { path: { id: domain.id } } })),
    retry: false,
  });
  const [chosen, setChosen] = useState<string[] | undefined>();
  const offered = query.data?.operations ?? [];
  const operations = chosen ?? offered.filter(one => one.default).map(({ name }) => name);
  const act = useStart(idempotency_key =>
    begun(
      api.POST('/api/domains/{id}/prepare/', {
        params: at(domain),
        body: { operations, idempotency_key },
      }),
    ),
  );
  return (
    <Dialog
      title={words.titles.prepare}
      submit={words.titles.prepare}
      isDanger
      isReady={operations.length > 0}
      size="medium"
      act={act}
      close={close}
    >
      <p>{words.prepareText}</p>
      <Shown query={query}>
        {() => (
          <Checks
            id="prepare-operations"
            label={words.operations}
            options={offered.map(({ name, description }) => [name, `${name}: ${description}`] as const)}
            chosen={operations}
            change={setChosen}
          />
        )}
      </Shown>
    </Dialog>
  );
}
