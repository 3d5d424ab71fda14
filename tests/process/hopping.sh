# A rank with a child that changes its number all the time.
cd "$(dirname "$0")" && setsid bash hop.sh &
exec sleep 1000
