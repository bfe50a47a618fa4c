/** What an action came to, told for a while, wherever the user has gone meanwhile. */
import { Alert, AlertActionCloseButton, AlertGroup } from '@patternfly/react-core';
import { createContext, type ReactNode, useCallback, useContext, useMemo, useState } from 'react';
import { Link } from 'react-router';
import type { Task } from '../api/client.ts';
import { useTaskState } from '../live/tasks.ts';
import { useWords } from '../texts/index.tsx';
import { StatusLabel } from './labels.tsx';

interface Toast {
  id: number;
  error?: unknown;
  task?: Task;
}

interface Toasts {
  /** An action that goes on. */
  started: (task: Task) => void;
  failed: (error: unknown) => void;
  /** Runs it; what it is refused for is told. */
  attempt: (work: () => Promise<unknown>) => void;
}

const ToastContext = createContext<Toasts | null>(null);
const MAX_TOASTS = 5;
let lastId = 0;

export function ToastProvider({ children }: { children: ReactNode }) {
  const [toasts, setToasts] = useState<Toast[]>([]);
  const add = useCallback((toast: Omit<Toast, 'id'>) => {
    lastId += 1;
    const id = lastId;
    setToasts(all => [{ id, ...toast }, ...all].slice(0, MAX_TOASTS));
  }, []);
  const close = useCallback((id: number) => setToasts(all => all.filter(toast => toast.id !== id)), []);
  const value = useMemo<Toasts>(() => {
    const failed = (error: unknown) => add({ error });
    return {
      started: task => add({ task }),
      failed,
      attempt: work => void work().catch(failed),
    };
  }, [add]);
  return (
    <ToastContext.Provider value={value}>
      {children}
      <AlertGroup isToast isLiveRegion>
        {toasts.map(toast => (
          <ToastAlert key={toast.id} toast={toast} close={() => close(toast.id)} />
        ))}
      </AlertGroup>
    </ToastContext.Provider>
  );
}

function ToastAlert({ toast, close }: { toast: Toast; close: () => void }) {
  const { texts } = useWords();
  const { task, error } = toast;
  const title = task ? texts.common.started(task.verbose_name) : texts.errors.title;
  return (
    <Alert
      variant={task ? 'info' : 'danger'}
      title={title}
      timeout={task ? 8000 : false}
      onTimeout={close}
      actionClose={
        <AlertActionCloseButton title={texts.common.close} aria-label={texts.common.close} onClose={close} />
      }
    >
      {task ? <StartedTask task={task} /> : error instanceof Error ? error.message : String(error)}
    </Alert>
  );
}

function StartedTask({ task }: { task: Task }) {
  const { status } = useTaskState(task);
  const { texts } = useWords();
  return (
    <>
      <StatusLabel status={status} /> <Link to="/tasks">{texts.tasks.title}</Link>
    </>
  );
}

export function useToasts(): Toasts {
  const toasts = useContext(ToastContext);
  if (toasts === null) throw new Error('outside of ToastProvider');
  return toasts;
}
