# A rank with a difficult family, without Python: what family.py does, for users who cannot reach the Python of the tests.
trap '' TERM
(touch "$MARKS/$BASHPID.pid" && exec sleep 1000) &
(touch "$MARKS/$BASHPID.pid" && exec setsid sleep 1000) &
((touch "$MARKS/$BASHPID.pid" && exec sleep 1000) &)
trap - TERM
touch "$MARKS/$$.pid"
exec sleep 1000
